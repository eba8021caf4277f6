"""Audits of models, and mitigations side by side: start one, watch it, read what it found."""

from __future__ import annotations

import streamlit as st

from whence.app import audits, sweeps
from whence.app.address import switch, turn_to
from whence.app.navigation import ASKED
from whence.app.own_files import offered, without_files
from whence.app.parts import plain, the_store
from whence.experiments.table import Table
from whence.leak.config import LeakConfig
from whence.leak.data import DATA
from whence.leak.instrument import LEAK
from whence.leak.run import LeakRun
from whence.store.runs import Store

NEW_AUDIT, AUDITS, NEW_MITIGATIONS, MITIGATIONS = "New audit", "Audits", "Compare mitigations", "Mitigations compared"
VIEWS = {NEW_AUDIT: "model", AUDITS: "audit", NEW_MITIGATIONS: "", MITIGATIONS: "comparison"}


def show() -> None:
    st.title("Leak")
    st.caption(ASKED["leak"])
    store = the_store()
    view = switch(VIEWS, "leak:view")
    if view == NEW_AUDIT:
        audits.new(store)
    elif view == AUDITS:
        audits.stored(store)
    elif view == NEW_MITIGATIONS:
        sweeps.new(SWEEP, store)
    else:
        sweeps.stored(SWEEP, store)


def _models(config: LeakConfig, table: Table[LeakRun], store: Store) -> None:
    """From a row of the table to an audit of one of its models."""
    with st.expander("Audit one of these models"):
        st.caption("Layer profile and pathways: the first seed of each mitigation, as a new audit.")
        for row in table.rows:
            for result in row.finished[:1]:
                turn_to(plain(f"{row.name}, seed {result.run.seed}"), model=result.run.id)


SWEEP = sweeps.sweep_of(
    LEAK,
    first=("data", "mitigations", "backbone", "seeds", "steps"),
    more=_models,
    offered=lambda store: offered(DATA),
    settle=lambda document, store: without_files(document, DATA, "whence leak compare --data FILE.npy"),
)
