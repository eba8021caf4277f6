"""Autoencoders: compare presets, look at the features of one, collect states to train them on."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import streamlit as st

from whence.app import sweeps
from whence.app.address import switch, turn_to
from whence.app.features.collecting import collect
from whence.app.features.looking import look
from whence.app.navigation import ASKED
from whence.app.parts import downloads, draw, findings, markup, plain, table, terminal, the_store
from whence.errors import not_allowed
from whence.features.activations import collections
from whence.features.comparison import ALL, BASELINE, PRESETS, Comparison
from whence.features.curves import Curves, curves_of
from whence.features.parts import DATA
from whence.features.run import Run
from whence.features.table import Row, Table, table_of, tabulate
from whence.report.badges import badge
from whence.report.feature_scores import by_strictness, strict_bars, strictness
from whence.report.features import LEGEND, comparison_page, failures, metrics, scores
from whence.runs.kept import kept_path
from whence.runs.store import Store

NEW, RESULTS, LOOK, COLLECT = "Compare", "Results", "Look", "Collect"
STORED = "stored"
START = {"presets": ["plain_topk", BASELINE, "001_run01_hard_mask", "001_run02_soft_mask"]}
"""Few enough for a first comparison, hard against soft among them."""


def show() -> None:
    st.title("Features")
    st.caption(ASKED["features"])
    store = the_store()
    view = switch({NEW: "", RESULTS: "comparison", LOOK: "run", COLLECT: "collection"}, "features:view")
    if view == COLLECT:
        collect(store)
    elif view == RESULTS:
        sweeps.stored(SWEEP, store)
    elif view == LOOK:
        look(store)
    else:
        _presets()
        sweeps.new(SWEEP, store)


# --- a new comparison


def _presets() -> None:
    with st.expander("The presets, and what each of them is"):
        table(
            ["preset", "what it is"],
            [[html.escape(name), html.escape(PRESETS.about(name))] for name in PRESETS.names()],
            label="presets",
        )


def _offered(store: Store) -> dict[str, dict[str, str]]:
    """No label of data begins what could be typed: Streamlit would take that for what is to be replaced."""
    made = {name: f"{name} (features are known)" for name in DATA.names() if name != STORED}
    collected = {path.name: f"{path.name} (collected)" for path in collections(store)}
    return {"presets": {name: name for name in (ALL, *PRESETS.names())}, "data": {**made, **collected}}


def _settled(document: dict[str, Any], store: Store) -> dict[str, Any]:
    """Collected states go by their name here: a path that is typed in a browser is never opened."""
    named = document.get("data")
    if named is None or (named.partition(":")[0] in DATA.names() and named.partition(":")[0] != STORED):
        return document
    paths = {path.name: path for path in collections(store)}
    if named not in paths:
        raise not_allowed("data", named, list(_offered(store)["data"]))
    return {**document, "data": str(paths[named])}


def _title(spec: Comparison) -> str:
    presets = "all presets" if spec.presets == (ALL,) else sweeps.counted(len(spec.presets), "preset")
    return f"{presets}: {spec.title}, {sweeps.counted(spec.seeds, 'seed')}"


def _planned(spec: Comparison, store: Store) -> list[Run]:
    """Presets may share a run."""
    return list({run.id: run for runs in spec.plan().values() for run in runs}.values())


# --- what it found


def _results(spec: Comparison, runs: list[Run], store: Store) -> None:
    plan = spec.plan()
    rows = tuple(_row(name, store.root, _stamp(of_one, store), of_one) for name, of_one in plan.items())
    found = table_of(spec.title, plan, rows, store)
    stamp = tuple((name, _stamp(of_one, store)) for name, of_one in plan.items())
    curves = _curves(store.root, stamp, found)
    if found.exploratory:
        markup(badge("exploratory"))
    findings(found.findings)
    markup(f"{metrics(found)}<p class=note>{html.escape(LEGEND)}</p>")
    failed = failures(rows)
    if failed:
        st.subheader("Failed, in no average")
        findings(failed)
    figures = scores(found, curves)
    for name, tab in zip(figures, st.tabs([name.partition(": ")[2] for name in figures]), strict=True):
        with tab:
            draw(figures[name], f"{name}. {found.title}", f"features:{name}")
    there = by_strictness(rows)
    if there:
        st.subheader("Hard against soft masks")
        markup(strictness(there))
        draw(strict_bars(there), "Variance unexplained by how strict a mask is, with it and lifted", "features:strict")
    _open_one(plan, found)
    _export(found, curves, spec, store)


def _stamp(runs: list[Run], store: Store) -> tuple[Any, ...]:
    """Of all of them, so that a run that changed is read again."""
    return tuple((run.id, *store.folder(run.id).stamp()) for run in runs)


@st.cache_resource(show_spinner="Comparing directions of different seeds", max_entries=256)
def _row(name: str, root: Path, stamp: Any, _runs: list[Run]) -> Row:
    return tabulate("", {name: _runs}, Store(root), {}).rows[0]


@st.cache_resource(show_spinner="Reading runs", max_entries=16)
def _curves(root: Path, stamp: Any, _table: Table) -> dict[str, Curves]:
    return curves_of(_table, Store(root))


def _open_one(plan: dict[str, list[Run]], found: Table) -> None:
    with st.expander("Look at the features of one of them"):
        for row in found.rows:
            with st.container(horizontal=True, vertical_alignment="center"):
                st.write(plain(row.name))
                for run in plan[row.name]:
                    if run.seed in row.metrics:
                        turn_to(f"seed {run.seed}", of=row.name, run=run.id)


def _export(found: Table, curves: dict[str, Curves], spec: Comparison, store: Store) -> None:
    path = kept_path(SWEEP.name, spec, store)
    again = terminal("features", "bench", "--config", str(path))
    downloads(
        path.stem,
        {
            ".html": lambda: comparison_page(found, curves, spec.model_dump(mode="json"), again),
            ".json": lambda: json.dumps(found.to_json(), indent=1).encode(),
        },
    )


SWEEP = sweeps.Sweep(
    name="features",
    words=["features", "bench"],
    spec=Comparison,
    first=("data", "presets", "seeds", "steps"),
    title=_title,
    results=_results,
    planned=_planned,
    start=START,
    offered=_offered,
    settle=_settled,
)
