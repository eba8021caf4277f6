"""One part of the model varied, all else equal: start such a comparison, watch it, read its results."""

from __future__ import annotations

from whence.app.address import part
from whence.app.comparisons import Comparisons
from whence.app.forms import offered_data, without_files
from whence.fields.data import DATA
from whence.fields.instrument import FIELDS
from whence.store.runs import Store

NEW, RESULTS = "New", "Results"


def show(store: Store) -> None:
    if part("fields", "part", [NEW, RESULTS]) == RESULTS:
        COMPARISONS.results(store)
    else:
        COMPARISONS.new(store)


COMPARISONS = Comparisons(
    FIELDS,
    first=("axis", "data", "seeds", "steps"),
    offered=lambda store: offered_data(DATA),
    resolve=lambda document, store: without_files(document, DATA, "whence fields compare --data DIR"),
    link={"view": "Ablations", "part": RESULTS},
)
