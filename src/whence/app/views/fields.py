"""Pictures at any resolution: render one, train a field and watch it sharpen, vary a part of the model."""

from __future__ import annotations

import streamlit as st

from whence.app.address import part
from whence.app.fields import ablations, render, train
from whence.app.navigation import ASKED
from whence.app.parts import guarded, the_store

VIEWS = {"Render": render.show, "Train": train.show, "Ablations": ablations.show}


def show() -> None:
    st.title("Fields")
    st.caption(ASKED["fields"])
    guarded(VIEWS[part("fields", "view", list(VIEWS))])(the_store())
