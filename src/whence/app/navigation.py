"""The pages, and how one gets to them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import streamlit as st

from whence.app.parts import guarded

PAGES = {
    "home": ("Home", ":material/home:"),
    "arena": ("Arena", ":material/leaderboard:"),
    "leak": ("Leak", ":material/water_drop:"),
    "features": ("Features", ":material/grid_on:"),
    "fields": ("Fields", ":material/texture:"),
    "runs": ("Runs", ":material/list:"),
}
ASKED = {
    "arena": "Which positional encoding should I use, and does it hold past the training length?",
    "leak": "Is my masked model predicting from content, or only from position? Where does it leak, and what stops it?",
    "features": "Which learned features are about position? Sparse autoencoders that know where.",
    "fields": "Can learnable position tokens carry a picture at any resolution?",
    "runs": "Every training run of this store, whoever started it.",
}


def page(name: str) -> Any:
    title, icon = PAGES[name]
    return st.Page(
        _shows(name), title=title, icon=icon, url_path="" if name == "home" else name, default=name == "home"
    )


def link(name: str, label: str, **where: str) -> None:
    """To a page, and to something on it."""
    st.page_link(page(name), label=label, icon=PAGES[name][1], query_params=where or None)


def _shows(name: str) -> Callable[[], None]:
    @guarded
    def show() -> None:
        importlib.import_module(f"whence.app.views.{name}").show()

    show.__name__ = show.__qualname__ = name
    return show
