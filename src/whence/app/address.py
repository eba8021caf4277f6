"""Query parameters: the address of a page contains what it shows, for links, reloads and the back button.

Streamlit's own binding of widgets (`bind="query-params"`, 1.67) is not used. It writes the label of an option in
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
    """A parameter of the address, not validated."""
    return str(st.query_params.get(name, ""))


def switch(views: Mapping[str, str], key: str) -> str:
    """A switch between the views of a page. views: by label, the parameter of the address that selects it, or "".

    The address takes precedence.
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
    """A link to something else on the same page; Streamlit's links would leave the address as it is.

    of: what it belongs to, if several links have the same target.
    """
    st.button(
        label, key=f"turn:{of}:{label}:{where}", type="tertiary", on_click=st.query_params.from_dict, args=(where,)
    )


def addressed(page: str, name: str, options: Sequence[T], usual: T, widget: Callable[..., Any]) -> T:
    """A widget, made by `widget(key=…)`, whose value is in the address. Unknown values in the address show an error.

    An opened address takes precedence over the previous value of the widget. A later choice is written to the address.
    """
    key = f"{page}:{name}"
    known = {str(option): option for option in options}
    wanted = query(name)
    if wanted and wanted not in known:
        st.error(
            plain(f"The address names {name} {wanted[:80]!r}, which does not exist here."), icon=":material/error:"
        )
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
    """A switch between parts of a page, with a parameter of its own. The first is the default."""
    return addressed(
        page,
        name,
        parts,
        parts[0],
        lambda key: st.segmented_control(name, parts, key=key, label_visibility="collapsed", required=True),
    )


def choice(page: str, name: str, label: str, options: Mapping[str, str], help: str | None = None) -> str:
    """A select box; the first option is the default. options: by name, labels."""
    texts = list(options.values())
    # Streamlit identifies options by their labels
    labels = {name: text if texts.count(text) == 1 else f"{text} · {name}" for name, text in options.items()}
    return addressed(
        page,
        name,
        list(labels),
        next(iter(labels)),
        lambda key: st.selectbox(label, list(labels), key=key, format_func=lambda one: labels[one], help=help),
    )
