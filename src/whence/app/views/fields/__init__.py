"""The page Fields: render images at any resolution, train fields, compare variants of the model."""

from __future__ import annotations

from whence.app.address import part
from whence.app.comparisons import Comparisons
from whence.app.components import guarded, header
from whence.app.forms import offered_data, without_files
from whence.app.views.fields import render, train
from whence.fields.data import DATA
from whence.fields.instrument import FIELDS
from whence.store.runs import Store

COMPARISONS = Comparisons(
    FIELDS,
    first=("axis", "data", "seeds", "steps"),
    offered=lambda store: offered_data(DATA),
    resolve=lambda document, store: without_files(document, DATA, "whence fields compare --data DIR"),
    link={"view": "Compare", "part": train.RESULTS},
)


def compare(store: Store) -> None:
    if part("fields", "part", [train.NEW, train.RESULTS]) == train.RESULTS:
        COMPARISONS.results(store)
    else:
        COMPARISONS.new(store)


VIEWS = {"Render": render.show, "Train": train.show, "Compare": compare}


def show() -> None:
    store = header("fields")
    guarded(VIEWS[part("fields", "view", list(VIEWS))])(store)
