"""Comparisons of encodings: start one, watch it, read what it found."""

from __future__ import annotations

import functools
import html
import tempfile
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from whence.app import sweeps
from whence.app.address import switch
from whence.app.navigation import ASKED
from whence.app.parts import counted, downloads, draw, empty, findings, guarded, markup, plain, terminal, the_store
from whence.arena.attention import Maps, attention_maps
from whence.arena.kept import KIND, PRESETS, stored_runs, tables_of
from whence.arena.spec import ArenaSpec
from whence.arena.table import Row, Table
from whence.report.badges import badge
from whence.report.export import WRITERS, browser
from whence.report.figures import accuracy_over_lengths, accuracy_over_positions, learning_curves
from whence.report.page import Page, scored_where, summary
from whence.runs.kept import kept_path
from whence.runs.store import Store
from whence.stats import SEEDS_TO_DECIDE

NEW, RESULTS = "New", "Results"


def show() -> None:
    st.title("Arena")
    st.caption(ASKED["arena"])
    store = the_store()
    if switch({NEW: "", RESULTS: "comparison"}, "arena:view") == RESULTS:
        sweeps.stored(SWEEP, store)
    else:
        sweeps.new(SWEEP, store)


def _title(spec: ArenaSpec) -> str:
    tasks, encodings = (", ".join(map(str, those)) for those in (spec.tasks, spec.encodings))
    return f"{tasks}: {encodings}, {counted(spec.seeds, 'seed')}"


def _results(spec: ArenaSpec, runs: list[Any], store: Store) -> None:
    stamp = tuple(tuple(store.folder(run.id).stamp()) for run in runs)
    tables = _tables(spec, store.root, stamp)
    for table, tab in zip(tables, st.tabs([plain(table.title) for table in tables]), strict=True):
        with tab:
            _table(table, store)
    _export(tables, spec, store)


@st.cache_resource(show_spinner="Reading runs", max_entries=16)
def _tables(spec: ArenaSpec, root: Path, stamp: Any) -> list[Table]:
    """stamp: of all its runs, so that a run that changed is read again."""
    store = Store(root)
    return tables_of(spec, store)


def _table(table: Table, store: Store) -> None:
    if not any(row.finished for row in table.rows):
        empty("No run of this table has finished yet.")
        return
    head = badge("exploratory") if table.seeds < SEEDS_TO_DECIDE else ""
    markup(f"{head} <span class=note>{html.escape(table.heading.removeprefix('exploratory: '))}</span>")
    findings(table.findings)
    st.caption(plain(scored_where(table)))
    markup(summary(table))
    name = table.title
    curves, lengths, positions, attention = st.tabs(["Learning curves", "By length", "By position", "Attention"])
    with curves:
        draw(learning_curves(table), f"Accuracy within the training length over steps, {name}", f"curves:{name}")
    with lengths:
        if table.run.test_lengths:
            draw(accuracy_over_lengths(table), f"Accuracy by length, end of training marked, {name}", f"lengths:{name}")
        else:
            empty("Nothing was scored beyond the training length.")
    with positions:
        figure = accuracy_over_positions(table)
        if figure is None:
            empty("This task has one answer per sequence, so there is nothing to show by position.")
        else:
            draw(figure, f"Accuracy at every position of the longest sequences, {name}", f"positions:{name}")
    with attention:
        _attention(table, store)


@st.fragment
@guarded
def _attention(table: Table, store: Store) -> None:
    """Where one run looks: any layer, head and example."""
    rows = {row.encoding: row for row in table.rows if row.members}
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


def _maps(row: Row, store: Store) -> Maps | None:
    run = row.members[0].run
    return _maps_of(run, store.root, tuple(store.folder(run.id).stamp()))


def _export(tables: list[Table], spec: ArenaSpec, store: Store) -> None:
    """The report of the command line, in any of its forms."""
    path = kept_path(KIND, spec, store)

    def made(ending: str) -> bytes:
        page = Page.of(tables, spec.model_dump(mode="json"), terminal("arena", "--config", str(path)), store, path.stem)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / f"report{ending}"
            WRITERS[ending](page, target)
            return target.read_bytes()

    possible = [ending for ending in WRITERS if ending != ".png" or browser()]
    downloads(path.stem, {ending: functools.partial(made, ending) for ending in possible})


SWEEP = sweeps.Sweep(
    name=KIND,
    words=["arena"],
    spec=ArenaSpec,
    first=("tasks", "encodings", "mixer", "seeds", "steps"),
    title=_title,
    results=_results,
    planned=lambda spec, store: [*spec.tuning_runs(), *stored_runs(spec, store)],
    presets=PRESETS,
)
