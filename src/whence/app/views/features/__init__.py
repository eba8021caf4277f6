"""The page Features: compare sparse autoencoders, inspect the features of one, collect activations."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from whence.app import components
from whence.app.address import switch, turn_to
from whence.app.comparisons import Comparisons
from whence.app.components import header, markup, plain
from whence.app.jobs import Document
from whence.app.views.features.collecting import collect
from whence.app.views.features.inspecting import inspect_run
from whence.errors import not_allowed
from whence.experiments.table import Table
from whence.features.activations.store import collections
from whence.features.config import ALL, FeaturesConfig
from whence.features.data import DATA
from whence.features.figures import strictness_section
from whence.features.instrument import BASELINE, FEATURES
from whence.features.run import PRESETS, FeaturesRun
from whence.store.runs import Store

NEW, RESULTS, INSPECT, COLLECT = "Compare", "Results", "Inspect", "Collect"
STORED = "stored"
START = {"presets": ["plain_topk", BASELINE, "001_run01_hard_mask", "001_run02_soft_mask"]}
"""A small first comparison, with a hard and a soft mask"""


def show() -> None:
    store = header("features")
    view = switch({NEW: "", RESULTS: "comparison", INSPECT: "run", COLLECT: "collection"}, "features:view")
    if view == COLLECT:
        collect(store)
    elif view == RESULTS:
        COMPARISONS.results(store)
    elif view == INSPECT:
        inspect_run(store)
    else:
        _presets()
        COMPARISONS.new(store)


# --- a new comparison


def _presets() -> None:
    with st.expander("Descriptions of the presets"):
        components.table(
            ["preset", "description"],
            [[name, PRESETS.about(name)] for name in PRESETS.names()],
            label="presets",
        )


def _offered(store: Store) -> dict[str, dict[str, str]]:
    """No label is a prefix of what a user could type: Streamlit would treat it as the text to replace."""
    synthetic = {name: f"{name} (synthetic, known features)" for name in DATA.names() if name != STORED}
    collected = {path.name: f"{path.name} (collected)" for path in collections(store)}
    return {"presets": {name: name for name in (ALL, *PRESETS.names())}, "data": {**synthetic, **collected}}


def _resolved(document: Document, store: Store) -> Document:
    """Collections are selected by name: the app never opens a path that was typed in a browser."""
    data = document.get("data", "")
    if isinstance(data, dict):  # of a saved comparison
        data = data["name"] if data.get("name") != STORED else Path(str(data.get("path"))).name
    named = str(data)
    if not named or (named.partition(":")[0] in DATA.names() and named.partition(":")[0] != STORED):
        return document
    paths = {path.name: path for path in collections(store)}
    if named not in paths:
        raise not_allowed("data", named, list(_offered(store)["data"]))
    return {**document, "data": str(paths[named])}


def _more(config: FeaturesConfig, table: Table[FeaturesRun], store: Store) -> None:
    """Masks by strictness, and links to the features of single runs."""
    for section in strictness_section(table.rows):
        markup(section)
    with st.expander("Inspect the features of one run"):
        for row in table.rows:
            with st.container(horizontal=True, vertical_alignment="center"):
                st.write(plain(row.name))
                for result in row.finished:
                    turn_to(f"seed {result.run.seed}", of=row.name, run=result.run.id)


COMPARISONS = Comparisons(
    FEATURES,
    first=("data", "presets", "seeds", "steps"),
    more=_more,
    start=START,
    offered=_offered,
    resolve=_resolved,
)
