"""Widgets whose value stands in the address of the page, so that it leads back to what was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st

from whence.app.parts import plain, query

T = TypeVar("T")


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


def switch(page: str, name: str, views: Sequence[str]) -> str:
    """Which part of a page is shown; the first, unless somebody says otherwise."""
    return addressed(
        page,
        name,
        views,
        views[0],
        lambda key: st.segmented_control(name, views, key=key, label_visibility="collapsed", required=True),
    )
