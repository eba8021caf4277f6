"""One part of the model varied, all else equal: start such a comparison, watch it, read its results."""

from __future__ import annotations

from whence.app import sweeps
from whence.app.address import part
from whence.app.own_files import offered, without_files
from whence.fields.data import DATA
from whence.fields.instrument import FIELDS
from whence.store.runs import Store

NEW, RESULTS = "New", "Results"


def show(store: Store) -> None:
    if part("fields", "part", [NEW, RESULTS]) == RESULTS:
        sweeps.stored(SWEEP, store)
    else:
        sweeps.new(SWEEP, store)


SWEEP = sweeps.sweep_of(
    FIELDS,
    first=("axis", "data", "seeds", "steps"),
    offered=lambda store: offered(DATA),
    settle=lambda document, store: without_files(document, DATA, "whence fields compare --data DIR"),
    where={"view": "Ablations", "part": RESULTS},
)
