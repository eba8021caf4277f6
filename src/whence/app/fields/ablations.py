"""One part of the model varied, all else equal: start such a comparison, watch it, read what it found."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import streamlit as st

from whence.app import sweeps
from whence.app.address import part
from whence.app.jobs import job_about
from whence.app.own_files import offered, without_files
from whence.app.parts import draw, findings, table
from whence.fields.ablation import Ablation
from whence.fields.data import DATA
from whence.fields.run import Run
from whence.fields.table import Table, tabulate
from whence.report.field_ablation import cells, quality_by_variant
from whence.runs.kept import kept_path
from whence.runs.store import Store

NEW, RESULTS = "New", "Results"


def show(store: Store) -> None:
    if part("fields", "part", [NEW, RESULTS]) == RESULTS:
        sweeps.stored(SWEEP, store)
    else:
        sweeps.new(SWEEP, store)


def _title(spec: Ablation) -> str:
    return f"{spec.title}, {sweeps.counted(spec.seeds, 'seed')}"


def _runs(spec: Ablation, store: Store) -> list[Run]:
    """Whether the data are still there does not matter to what was found."""
    return [run for runs in spec.runs().values() for run in runs]


def _results(spec: Ablation, runs: list[Run], store: Store) -> None:
    stamp = tuple(tuple(store.folder(run.id).stamp()) for run in runs)
    costs = _costs(spec, store)
    found = _table(spec, store.root, stamp, costs)
    findings(found.findings)
    columns, rows = cells(found)
    st.caption("PSNR (dB) of the field on signals never trained on, with 95 % intervals over seeds.")
    table(list(map(html.escape, columns)), [list(map(html.escape, row)) for row in rows], label="variants")
    if not any(row.cost for row in found.rows):
        st.caption("Time and memory are measured at the end, where such a comparison is started from this page.")
    draw(quality_by_variant(found), f"PSNR of every variant: {found.title}", f"variants:{found.title}")


def _costs(spec: Ablation, store: Store) -> dict[str, dict[str, float]]:
    """As the command measured them: this process has other things to do meanwhile."""
    job = job_about(store, kept_path(SWEEP.name, spec, store).stem)
    rows = (job.result() or {}).get("rows", []) if job is not None else []
    return {row["name"]: row["cost"] for row in rows if row.get("cost")}


@st.cache_resource(show_spinner="Reading runs", max_entries=16)
def _table(spec: Ablation, root: Path, stamp: Any, costs: dict[str, dict[str, float]]) -> Table:
    """stamp: of all its runs, so that a run that changed is read again."""
    return tabulate(spec.title, spec.runs(), Store(root), costs=costs)


SWEEP = sweeps.Sweep(
    name=Run.kind,
    words=["fields", "ablate"],
    spec=Ablation,
    offered=lambda store: offered(DATA),
    settle=lambda document, store: without_files(document, DATA, "whence fields ablate --data DIR"),
    first=("axis", "data", "seeds", "steps"),
    title=_title,
    results=_results,
    planned=_runs,
    where={"view": "Ablations", "part": RESULTS},
)
