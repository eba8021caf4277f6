"""Pictures at any resolution: render one, train a field and watch it sharpen, vary a part of the model."""

from __future__ import annotations

from whence.app.address import part
from whence.app.components import guarded, header
from whence.app.fields import ablations, render, train

VIEWS = {"Render": render.show, "Train": train.show, "Ablations": ablations.show}


def show() -> None:
    store = header("fields")
    guarded(VIEWS[part("fields", "view", list(VIEWS))])(store)
