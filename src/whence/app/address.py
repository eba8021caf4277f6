"""What is shown stands in the address of the page: links, a reload and the way back lead to it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from whence.app.components import plain

T = TypeVar("T")


def query(name: str) -> str:
    """A parameter of the address; whoever uses it checks it."""
    return str(st.query_params.get(name, ""))


def switch(views: Mapping[str, str], key: str) -> str:
    """Which part of a page is shown. views: by label, the parameter of the address that leads to it, or nothing.

    The address decides.
    """

    def move() -> None:
        for parameter in set(views.values()) & set(st.query_params):
            del st.query_params[parameter]
        if parameter := views[st.session_state[key]]:
            st.query_params[parameter] = ""

    first, before = next(iter(views)), st.session_state.get(key)
    led_to = next((label for label, parameter in views.items() if parameter in st.query_params), None)
    st.session_state[key] = led_to or (before if before and not views[before] else first)
    st.segmented_control("View", list(views), key=key, on_change=move, required=True, label_visibility="collapsed")
    return st.session_state[key]


def turn_to(label: str, of: str = "", **where: str) -> None:
    """To something else on the same page: a link of Streamlit's would leave the address as it is.

    of: what it belongs to, where the same may be led to from several places.
    """
    st.button(
        label, key=f"turn:{of}:{label}:{where}", type="tertiary", on_click=st.query_params.from_dict, args=(where,)
    )


def addressed(page: str, name: str, options: Sequence[T], usual: T, widget: Callable[..., Any]) -> T:
    """`widget(key=…)` makes it. The address can name one of the options; anything else gets a message.

    An address that somebody opened wins over what the widget was set to before; what is chosen afterwards wins over
    the address, and is written to it.
    """
    key = f"{page}:{name}"
    known = {str(option): option for option in options}
    wanted = query(name)
    if wanted and wanted not in known:
        st.error(plain(f"The address asks for {name} {wanted[:80]!r}, which is not here."), icon=":material/error:")
    elif wanted and (key not in st.session_state or wanted != st.session_state.get(f"{key}:told")):
        st.session_state[key] = known[wanted]
    if st.session_state.get(key) not in options:
        st.session_state[key] = usual
    found = widget(key=key)
    chosen: T = usual if found is None else found
    if str(chosen) != wanted:
        st.query_params[name] = str(chosen)
    st.session_state[f"{key}:told"] = str(chosen)
    return chosen


def part(page: str, name: str, parts: Sequence[str]) -> str:
    """Which part of a page is shown, under a parameter of its own; the first, unless somebody says otherwise."""
    return addressed(
        page,
        name,
        parts,
        parts[0],
        lambda key: st.segmented_control(name, parts, key=key, label_visibility="collapsed", required=True),
    )


def choice(page: str, name: str, label: str, options: Mapping[str, str], help: str | None = None) -> str:
    """One of several, the first unless somebody says otherwise. options: each with what is said of it."""
    said = list(options.values())
    # Streamlit tells options apart by what is said of them
    labels = {one: text if said.count(text) == 1 else f"{text} · {one}" for one, text in options.items()}
    return addressed(
        page,
        name,
        list(labels),
        next(iter(labels)),
        lambda key: st.selectbox(label, list(labels), key=key, format_func=lambda one: labels[one], help=help),
    )
