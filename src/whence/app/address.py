"""What is shown is part of the page's address, so that links, a reload and the back button lead to it again.

Streamlit's own binding of widgets (`bind="query-params"`, 1.67) does not serve. It writes the label of an option in
place of the option, so that addresses would change with titles and dates. It drops defaults from the address, so that a
link to the latest comparison would lead to another one later. It discards an unknown value without a message.
"""

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
    addressed = next((label for label, parameter in views.items() if parameter in st.query_params), None)
    st.session_state[key] = addressed or (before if before and not views[before] else first)
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
    elif wanted and (key not in st.session_state or wanted != st.session_state.get(f"{key}:written")):
        st.session_state[key] = known[wanted]
    if st.session_state.get(key) not in options:
        st.session_state[key] = usual
    value = widget(key=key)
    chosen: T = usual if value is None else value
    if str(chosen) != wanted:
        st.query_params[name] = str(chosen)
    st.session_state[f"{key}:written"] = str(chosen)
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
    """One of several, the first by default. options: each with its label."""
    texts = list(options.values())
    # Streamlit tells options apart by their labels
    labels = {name: text if texts.count(text) == 1 else f"{text} · {name}" for name, text in options.items()}
    return addressed(
        page,
        name,
        list(labels),
        next(iter(labels)),
        lambda key: st.selectbox(label, list(labels), key=key, format_func=lambda one: labels[one], help=help),
    )
