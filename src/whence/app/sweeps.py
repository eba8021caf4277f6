"""Comparisons of many runs, as every instrument has them: start one, watch it, find it again, stop it, go on."""

from __future__ import annotations

import html
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import streamlit as st

from whence.app.address import choice
from whence.app.forms import Offered, form
from whence.app.jobs import CompareRequest, Job, find_job, submit
from whence.app.parts import counted, downloads, draw, empty, findings, guarded, live, markup, plain, terminal
from whence.app.progress import controls, is_alive, show_progress, standings
from whence.config import Config
from whence.errors import UserError
from whence.experiments.comparison import check_plan, plan_note, planned_runs, tables_of
from whence.experiments.export import WRITERS, Report, browser
from whence.experiments.instrument import Instrument
from whence.experiments.page import lost_html, summary_html, table_html
from whence.experiments.saved import Presets, config_path, save_config, saved_configs
from whence.experiments.table import Table
from whence.report.html import badge
from whence.store.artifacts import artifact_paths
from whence.store.runs import Store

S = TypeVar("S", bound=Config)
EVERY_SECONDS = 2.0
MISSING = ("not begun", "interrupted")


@dataclass(frozen=True)
class Sweep(Generic[S]):
    """What a page knows about the comparisons of its instrument."""

    name: str
    """The instrument; what the store keeps begins with it."""
    words: Sequence[str]
    """The command."""
    spec: type[S]
    first: Sequence[str]
    """The fields most people set."""
    title: Callable[[S], str]
    results: Callable[[S, list[Any], Store], None]
    """Draws what the stored runs say; called when one has finished, with all that are planned."""
    planned: Callable[[S, Store], list[Any]]
    check: Callable[[S, Store], Any]
    """Raises `UserError` for fields that are valid alone and impossible together."""
    note: Callable[[S, Store], str]
    """How many seeds the plan needs."""
    presets: Presets | None = None
    start: dict[str, Any] | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    """What an address needs to lead to results, beside the comparison's name."""
    offered: Callable[[Store], Offered] = lambda store: {}
    """By field, what of the store can be chosen (see `form`)."""
    settle: Callable[[dict[str, Any], Store], dict[str, Any]] = lambda document, store: document
    """What the command is given for what the form holds (see `form`)."""


def sweep_of(
    instrument: Instrument[Any, Any],
    first: Sequence[str],
    more: Callable[[Any, Table[Any], Store], None] = lambda config, table, store: None,
    **others: Any,
) -> Sweep[Any]:
    """more: draws what the page of this instrument has beside a table and its figures."""

    def results(config: Any, runs: list[Any], store: Store) -> None:
        stamp = (*(tuple(store.folder(run.id).stamp()) for run in runs), *(path.name for path in artifact_paths(store)))
        tables = _tables(instrument.name, config, store.root, stamp, instrument)
        for section in summary_html(instrument, tables):
            markup(section)
        places = st.tabs([plain(table.title) for table in tables]) if len(tables) > 1 else [st.container()]
        for table, place in zip(tables, places, strict=True):
            with place:
                if not any(row.finished for row in table.rows):
                    empty("No run of this table has finished yet.")
                    markup(lost_html(table))
                    continue
                show_table(instrument, table)
                guarded(more)(config, table, store)
        _downloads(instrument, config, store)

    return Sweep(
        name=instrument.name,
        words=list(instrument.command),
        spec=instrument.config,
        first=first,
        title=instrument.title,
        results=results,
        planned=lambda config, store: planned_runs(instrument, config, store),
        check=lambda config, store: check_plan(instrument, config, store),
        note=lambda config, store: plan_note(instrument, config, store),
        presets=instrument.presets,
        **others,
    )


@st.cache_resource(show_spinner="Reading runs", max_entries=16)
def _tables(name: str, config: Any, root: Path, stamp: Any, _instrument: Instrument[Any, Any]) -> list[Table[Any]]:
    """stamp: of all its runs and of what was measured, so that what changed is read again."""
    return tables_of(_instrument, config, Store(root))


def show_table(instrument: Instrument[Any, Any], table: Table[Any]) -> None:
    """Findings, table and figures, as the report has them."""
    head = badge("exploratory") if table.exploratory else ""
    markup(f"{head} <span class=note>{html.escape(table.heading.removeprefix('exploratory: '))}</span>")
    findings(table.findings)
    markup(table_html(instrument, table) + lost_html(table))
    figures = instrument.figures(table)
    for name, tab in zip(figures, st.tabs(list(figures)) if figures else [], strict=True):
        with tab:
            draw(figures[name], f"{name}. {table.title}", f"{instrument.name}:{table.title}:{name}")


def _downloads(instrument: Instrument[Any, Any], config: Any, store: Store) -> None:
    """The report of the command line, in any of its forms."""
    path = config_path(instrument.name, config, store)
    command = terminal(*instrument.command, "--config", str(path))

    def made(ending: str) -> bytes:
        tables = tables_of(instrument, config, store)
        report = Report(instrument, tables, config.model_dump(mode="json"), command, store)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / f"report{ending}"
            WRITERS[ending](report, target)
            return target.read_bytes()

    possible = [ending for ending in WRITERS if ending != ".png" or browser()]
    downloads(path.stem, {ending: partial(made, ending) for ending in possible})


def new(sweep: Sweep[S], store: Store) -> None:
    """The form, and the button that starts it."""
    filled = form(
        sweep.spec,
        sweep.name,
        sweep.words,
        first=sweep.first,
        presets=sweep.presets,
        check=lambda spec: sweep.check(spec, store),
        start=sweep.start,
        offered=sweep.offered(store),
        settle=lambda document: sweep.settle(document, store),
    )
    if filled.spec is not None:
        planned = sweep.planned(filled.spec, store)
        st.caption(f"{counted(len(planned), 'run')}. What the store has already is not run again.")
        st.caption(sweep.note(filled.spec, store))
    if st.button("Start", type="primary", disabled=filled.spec is None, icon=":material/play_arrow:") and filled.spec:
        store.prepare()
        name = save_config(sweep.name, filled.spec, store).stem
        where = {**sweep.where, "comparison": name}
        submit(_request(sweep, filled.spec), store, title=sweep.title(filled.spec), link=where)
        st.query_params.update(where)
        st.rerun()


def stored(sweep: Sweep[S], store: Store) -> None:
    """One of those that the store keeps, chosen by the reader or by the address."""
    paths = {path.stem: path for path in saved_configs(sweep.name, store)}
    if not paths:
        empty("No comparison has been started in this store yet.", "Fill in the form under “New” and press Start.")
        return
    labels = {name: _label(sweep, path) for name, path in paths.items()}
    chosen = choice(sweep.name, "comparison", "Comparison", labels)
    spec = _read(sweep.spec, paths[chosen])
    runs = sweep.planned(spec, store)
    job = find_job(_request(sweep, spec), store)
    found = standings(runs, store)
    alive, finished = is_alive(found, job), [one for one in found if one.state == "finished"]
    live(EVERY_SECONDS if alive else None)(_watch)(runs, store, job, chosen, alive, len(finished))
    if not alive and (job is None or job.state == "finished") and any(one.state in MISSING for one in found):
        guarded(_go_on)(sweep, chosen, paths[chosen], store)
    if finished:
        guarded(sweep.results)(spec, runs, store)
    elif not alive:
        empty("None of its runs has finished.", "Start it again under “New”, or resume it above.")
    with st.expander("What was asked for"):
        st.json(json.loads(paths[chosen].read_text()), expanded=1)


def _go_on(sweep: Sweep[S], name: str, path: Path, store: Store) -> None:
    """Some of its runs were deleted, or it was interrupted in a terminal."""
    if st.button("Run what is missing", icon=":material/play_arrow:", type="primary"):
        sweep.settle(json.loads(path.read_text()), store)
        spec = _read(sweep.spec, path)
        submit(_request(sweep, spec), store, title=sweep.title(spec), link={**sweep.where, "comparison": name})
        st.rerun()


def _request(sweep: Sweep[S], spec: S) -> CompareRequest:
    return CompareRequest(instrument=sweep.name, config=spec.model_dump(mode="json"))


def _watch(runs: list[Any], store: Store, job: Job | None, name: str, alive: bool, finished: int) -> None:
    """Made anew while something runs; the whole page, when a run has ended or everything has."""
    found = standings(runs, store)
    now_alive = is_alive(found, job)
    if now_alive or any(one.state != "finished" for one in found):
        show_progress(found, job)
    controls(job, name)
    if now_alive != alive or sum(one.state == "finished" for one in found) != finished:
        st.rerun()


def _label(sweep: Sweep[Any], path: Path) -> str:
    when = datetime.fromtimestamp(path.stat().st_mtime).strftime("%d %b %H:%M")
    try:
        return f"{sweep.title(_read(sweep.spec, path))} · {when}"
    except UserError:
        return f"{path.stem} · {when} · cannot be read"


@st.cache_resource(show_spinner=False, max_entries=256)
def _read(spec_class: type[S], path: Path) -> S:
    """Kept under the checksum of what it says: never another one under the same name."""
    try:
        return spec_class.read(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"comparison: {path.name!r} cannot be read ({type(error).__name__}).", field="comparison"
        ) from None
