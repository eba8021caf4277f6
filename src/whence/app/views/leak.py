"""Audits of models, and cures side by side: start one, watch it, read what it found."""

from __future__ import annotations

import json

import streamlit as st

from whence.app import audits, sweeps
from whence.app.address import switch, turn_to
from whence.app.navigation import ASKED
from whence.app.own_files import offered, without_files
from whence.app.parts import counted, downloads, draw, findings, markup, plain, terminal, the_store
from whence.leak.data import DATA
from whence.leak.run import Run
from whence.leak.spec import LeakSpec
from whence.leak.table import Table, tabulate
from whence.report.badges import badge
from whence.report.leak import cure_page, cures_table, errors_by_share, moved_by_share
from whence.runs.kept import kept_path
from whence.runs.store import Store
from whence.stats import SEEDS_TO_DECIDE

NEW_AUDIT, AUDITS, NEW_CURES, CURES = "New audit", "Audits", "Compare cures", "Cures compared"
VIEWS = {NEW_AUDIT: "model", AUDITS: "audit", NEW_CURES: "", CURES: "comparison"}


def show() -> None:
    st.title("Leak")
    st.caption(ASKED["leak"])
    store = the_store()
    view = switch(VIEWS, "leak:view")
    if view == NEW_AUDIT:
        audits.new(store)
    elif view == AUDITS:
        audits.stored(store)
    elif view == NEW_CURES:
        sweeps.new(SWEEP, store)
    else:
        sweeps.stored(SWEEP, store)


def _title(spec: LeakSpec) -> str:
    return f"{spec.data}: {', '.join(map(str, spec.cures))}, {counted(spec.seeds, 'seed')}"


def _results(spec: LeakSpec, runs: list[Run], store: Store) -> None:
    table = tabulate(runs, store, {})
    head = badge("exploratory") if table.seeds < SEEDS_TO_DECIDE else ""
    markup(f"{head} <span class=note>{counted(table.seeds, 'paired seed')}</span>")
    findings(table.findings)
    markup(cures_table(table))
    shown = [row for row in table.rows if row.metrics]
    errors, moved, closer = st.tabs(["Reconstruction", "What moving changes", "Audit one of them"])
    with errors:
        draw(errors_by_share(shown), f"Error by share of tokens hidden, {table.title}", "cures:errors")
    with moved:
        draw(moved_by_share(shown), f"What moving everything changes, {table.title}", "cures:moved")
    with closer:
        _models(table, runs)
    path = kept_path(SWEEP.name, spec, store)
    again = terminal("leak", "cure", "--config", str(path))
    downloads(
        path.stem,
        {
            ".json": lambda: json.dumps(table.to_json(), indent=1).encode(),
            ".html": lambda: cure_page(table, spec.model_dump(mode="json"), again),
        },
    )


def _models(table: Table, runs: list[Run]) -> None:
    """From a line of the table to a closer look at what it says."""
    st.caption("Layer profile and pathways: the first seed of each cure, as a new audit.")
    for row in table.rows:
        run = next((run for run in runs if run.cure == row.cure and run.seed in row.metrics), None)
        if run:
            turn_to(plain(f"{row.cure}, seed {run.seed}"), model=run.id)


SWEEP = sweeps.Sweep(
    name="leak",
    words=["leak", "cure"],
    spec=LeakSpec,
    first=("data", "cures", "backbone", "seeds", "steps"),
    title=_title,
    results=_results,
    offered=lambda store: offered(DATA),
    settle=lambda document, store: without_files(document, DATA, "whence leak cure --data FILE.npy"),
)
