"""The page Leak: audits of models and comparisons of mitigations."""

from __future__ import annotations

import streamlit as st

from whence.app import audits
from whence.app.address import switch, turn_to
from whence.app.comparisons import Comparisons
from whence.app.components import header, plain
from whence.app.forms import offered_data, without_files
from whence.experiments.table import Table
from whence.leak.config import LeakConfig
from whence.leak.data import DATA
from whence.leak.instrument import LEAK
from whence.leak.run import LeakRun
from whence.store.runs import Store

NEW_AUDIT, AUDITS, NEW_MITIGATIONS, MITIGATIONS = "New audit", "Audits", "Compare mitigations", "Mitigations compared"
VIEWS = {NEW_AUDIT: "model", AUDITS: "audit", NEW_MITIGATIONS: "", MITIGATIONS: "comparison"}


def show() -> None:
    store = header("leak")
    view = switch(VIEWS, "leak:view")
    if view == NEW_AUDIT:
        audits.new(store)
    elif view == AUDITS:
        audits.stored(store)
    elif view == NEW_MITIGATIONS:
        COMPARISONS.new(store)
    else:
        COMPARISONS.results(store)


def _models(config: LeakConfig, table: Table[LeakRun], store: Store) -> None:
    """Links from the rows of the table to audits of their models."""
    with st.expander("Audit one of these models"):
        st.caption(
            "An audit measures the layer profile and the pathways of a model. Choose the first seed of a mitigation:"
        )
        for row in table.rows:
            for result in row.finished[:1]:
                turn_to(plain(f"{row.name}, seed {result.run.seed}"), model=result.run.id)


COMPARISONS = Comparisons(
    LEAK,
    first=("data", "mitigations", "backbone", "seeds", "steps"),
    more=_models,
    offered=lambda store: offered_data(DATA),
    resolve=lambda document, store: without_files(document, DATA, "whence leak compare --data FILE.npy"),
)
