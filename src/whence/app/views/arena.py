"""Comparisons of encodings: start one, watch it, read its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from whence.app import sweeps
from whence.app.address import switch
from whence.app.navigation import ASKED
from whence.app.parts import draw, empty, guarded, the_store
from whence.arena.attention import Maps, attention_maps
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA
from whence.arena.run import ArenaRun
from whence.experiments.table import Row, Table
from whence.store.runs import Store

NEW, RESULTS = "New", "Results"


def show() -> None:
    st.title("Arena")
    st.caption(ASKED["arena"])
    store = the_store()
    if switch({NEW: "", RESULTS: "comparison"}, "arena:view") == RESULTS:
        sweeps.stored(SWEEP, store)
    else:
        sweeps.new(SWEEP, store)


def _more(config: ArenaConfig, table: Table[ArenaRun], store: Store) -> None:
    with st.expander("Attention", expanded=True):
        _attention(table, store)


@st.fragment
@guarded
def _attention(table: Table[ArenaRun], store: Store) -> None:
    """Where one run looks: any layer, head and example."""
    rows = {row.name: row for row in table.rows if row.finished}
    picks = st.columns(4)
    key = f"attention:{table.title}"
    encoding = picks[0].selectbox("Encoding", list(rows), key=f"{key}:encoding")
    maps = _maps(rows[encoding], store) if encoding else None
    if maps is None:
        empty("No attention to show.", "This model has none, or its sequences are too long to look at.")
        return
    layers, examples, heads, _, _ = maps.weights.shape
    layer = picks[1].selectbox("Layer", range(1, layers + 1), key=f"{key}:layer")
    head = picks[2].selectbox("Head", range(1, heads + 1), key=f"{key}:head")
    example = picks[3].selectbox("Example", range(1, examples + 1), key=f"{key}:example")
    far = float(maps.distance[layer - 1, head - 1])
    st.caption(f"Layer {layer}, head {head} looks {far:.1f} places away on average. Rows look, columns are looked at.")
    draw(
        _map(maps, layer - 1, head - 1, example - 1),
        f"Attention of {encoding}, layer {layer}, head {head}, example {example}: {far:.1f} places away on average",
        f"{key}:map",
    )


def _map(maps: Maps, layer: int, head: int, example: int) -> go.Figure:
    weights, tokens = maps.weights[layer, example, head], maps.inputs[example].tolist()
    places = list(range(len(tokens)))
    said = [[f"place {q} (symbol {tokens[q]}) looks at place {k} (symbol {tokens[k]})" for k in places] for q in places]
    figure = go.Figure()
    figure.add_heatmap(
        z=(100 * weights).tolist(),
        text=said,
        zmin=0,
        zmax=100,
        colorscale="Cividis",
        colorbar={"title": "weight (%)"},
        hovertemplate="%{text}: %{z:.0f} %<extra></extra>",
    )
    figure.update_layout(
        xaxis={"title": "place looked at", "constrain": "domain"},
        yaxis={"title": "place that looks", "autorange": "reversed", "scaleanchor": "x", "constrain": "domain"},
        height=520,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
    )
    return figure


@st.cache_resource(show_spinner="Looking into the model", max_entries=32)
def _maps_of(run: Any, root: Path, stamp: Any) -> Maps | None:
    """stamp: a run that was deleted and trained again is read again."""
    return attention_maps(run, Store(root).folder(run.id))


def _maps(row: Row[ArenaRun], store: Store) -> Maps | None:
    run = row.finished[0].run
    return _maps_of(run, store.root, tuple(store.folder(run.id).stamp()))


SWEEP = sweeps.sweep_of(ARENA, first=("tasks", "encodings", "mixer", "seeds", "steps"), more=_more)
