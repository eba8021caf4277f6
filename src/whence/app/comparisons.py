"""Comparisons of an instrument: start, watch, stop and resume them, and read their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import streamlit as st
from markupsafe import Markup

from whence.app.address import choice
from whence.app.components import (
    counted,
    downloads,
    draw,
    empty,
    findings,
    guarded,
    live,
    markup,
    plain,
)
from whence.app.forms import Offered, form
from whence.app.jobs import CompareRequest, Document, Job, find_job, submit
from whence.app.progress import controls, is_alive, progress_of, show_progress
from whence.errors import UserError
from whence.experiments.comparison import check_plan, plan_note, planned_runs, report_on, tables_of
from whence.experiments.export import FORMATS, Report
from whence.experiments.instrument import ComparisonConfig, Instrument
from whence.experiments.page import lost_html, summary_html, table_html
from whence.experiments.saved import config_path, read_config, read_document, save_config, saved_configs
from whence.experiments.table import Table
from whence.report.html import badge
from whence.store.artifacts import artifact_paths
from whence.store.disk import CorruptFileError
from whence.store.runs import Store
from whence.training.config import AnyRun

C = TypeVar("C", bound=ComparisonConfig)
R = TypeVar("R", bound=AnyRun)
EVERY_SECONDS = 2.0
MISSING = ("not started", "interrupted")


@dataclass(frozen=True)
class LatestResult:
    """A result in the list of the first page."""

    page: str
    title: str
    time: float
    verdict: Sequence[str]
    """Sentences"""
    badges: Sequence[str]
    link: Mapping[str, str]
    """Query parameters of the page"""


@dataclass(frozen=True)
class Comparisons(Generic[C, R]):
    """The part of a page that all instruments share."""

    instrument: Instrument[C, R]
    first: Sequence[str]
    """Fields at the top of the form"""
    more: Callable[[C, Table[R], Store], None] = lambda config, table, store: None
    """Draws additional content below a table"""
    start: Mapping[str, object] | None = None
    """Initial values of the form that differ from the defaults"""
    link: Mapping[str, str] = field(default_factory=dict)
    """Additional query parameters of links to results"""
    offered: Callable[[Store], Offered] = lambda store: {}
    resolve: Callable[[Document, Store], Document] = lambda document, store: document
    """Both: see `form`"""

    def new(self, store: Store) -> None:
        """The form and the start button."""
        instrument = self.instrument
        config = form(
            instrument.config,
            instrument.name,
            instrument.command,
            first=self.first,
            presets=instrument.presets,
            check=lambda config: check_plan(instrument, config, store),
            start=self.start,
            offered=self.offered(store),
            resolve=lambda document: self.resolve(document, store),
        )
        if config is not None:
            planned = planned_runs(instrument, config, store)
            st.caption(plain(f"{counted(len(planned), 'run')} ({_count_cached(planned, store):,} cached)."))
            st.caption(plain(plan_note(instrument, config, store)))
        if st.button("Start", type="primary", disabled=config is None, icon=":material/play_arrow:") and config:
            store.prepare()
            st.query_params.update(self._submit(config, save_config(instrument.name, config, store).stem, store))
            st.rerun()

    def results(self, store: Store) -> None:
        """One comparison of the store, selected in a list or by the address."""
        instrument = self.instrument
        paths = {path.stem: path for path in saved_configs(instrument.name, store)}
        if not paths:
            empty("No comparison has been started in this store yet.", "Fill in the form under “New” and press Start.")
            return
        chosen = choice(instrument.name, "comparison", "Comparison", {n: self._label(p) for n, p in paths.items()})
        config = _read(instrument.config, paths[chosen])
        runs, job = planned_runs(instrument, config, store), find_job(self._request(config), store)
        progress = progress_of(runs, store)
        alive, finished = is_alive(progress, job), sum(run.state == "finished" for run in progress)
        live(EVERY_SECONDS if alive else None)(_watch)(runs, store, job, chosen, alive, finished)
        if not alive and (job is None or job.state == "finished") and any(run.state in MISSING for run in progress):
            guarded(self._run_missing)(config, paths[chosen], store)
        if finished:
            guarded(self._tables)(config, runs, store)
        elif not alive:
            empty("No run of this comparison has finished.", "Resume it above, or start it again under “New”.")
        with st.expander("Configuration"):
            st.json(config.model_dump(mode="json"), expanded=1)

    def latest(self, store: Store, count: int) -> list[LatestResult]:
        """The comparisons that were started last, those that can be read."""
        results: list[LatestResult] = []
        for path in saved_configs(self.instrument.name, store)[:count]:
            with suppress(UserError, CorruptFileError, OSError):
                results.append(self._latest(path, store))
        return results

    def _latest(self, path: Path, store: Store) -> LatestResult:
        config = _read(self.instrument.config, path)
        runs = planned_runs(self.instrument, config, store)
        states = Counter(run.state for run in progress_of(runs, store))
        progress = f"{states['finished']} of {counted(len(runs), 'run')} finished."
        if states["running"] or not states["finished"]:
            verdict, words = [progress], ["running" if states["running"] else "interrupted"]
        else:
            tables = self._read_tables(config, runs, store)
            several = len(tables) > 1
            verdict = [f"{table.title}: {table.conclusion}" if several else table.conclusion for table in tables]
            words = ["exploratory"] if all(table.exploratory for table in tables) else []
        title, link = self.instrument.title(config), {**self.link, "comparison": path.stem}
        return LatestResult(self.instrument.name, title, path.stat().st_mtime, verdict, words, link)

    def _request(self, config: C) -> CompareRequest:
        return CompareRequest(instrument=self.instrument.name, config=config.model_dump(mode="json"))

    def _submit(self, config: C, name: str, store: Store) -> dict[str, str]:
        """Returns the query parameters of the results."""
        link = {**self.link, "comparison": name}
        submit(self._request(config), store, title=self.instrument.title(config), link=link)
        return link

    def _run_missing(self, config: C, path: Path, store: Store) -> None:
        """For comparisons with deleted runs, and those that were interrupted in a terminal."""
        if st.button("Start missing runs", icon=":material/play_arrow:", type="primary"):
            self.resolve(
                read_document(path, "comparison"), store
            )  # a store from elsewhere may name files, which is refused
            self._submit(config, path.stem, store)
            st.rerun()

    def _label(self, path: Path) -> str:
        when = datetime.fromtimestamp(path.stat().st_mtime).strftime("%d %b %H:%M")
        try:
            return f"{self.instrument.title(_read(self.instrument.config, path))} · {when}"
        except UserError:
            return f"{path.stem} · {when} · cannot be read"

    def _read_tables(self, config: C, runs: Sequence[R], store: Store) -> list[Table[R]]:
        stamp = (*(tuple(store.folder(run.id).stamp()) for run in runs), *(path.name for path in artifact_paths(store)))
        return _tables_of(self.instrument.name, config, store.root, stamp, self.instrument)

    def _tables(self, config: C, runs: Sequence[R], store: Store) -> None:
        instrument, tables = self.instrument, self._read_tables(config, runs, store)
        for section in summary_html(instrument, tables):
            markup(section)
        places = st.tabs([plain(table.title) for table in tables]) if len(tables) > 1 else [st.container()]
        for table, place in zip(tables, places, strict=True):
            with place:
                if not any(row.finished for row in table.rows):
                    empty("No run of this table has finished yet.")
                    markup(lost_html(table))
                    continue
                _show_table(instrument, table)
                guarded(self.more)(config, table, store)
        path = config_path(instrument.name, config, store)

        def make(form: Callable[[Report], bytes]) -> bytes:
            return form(report_on(instrument, config, store, ["--config", str(path)]))

        downloads(path.stem, {ending: partial(make, form) for ending, form in FORMATS.items()})


def _count_cached(planned: Sequence[AnyRun], store: Store) -> int:
    stored = set(store.ids())
    return sum(store.summary(run.id).state == "finished" for run in planned if run.id in stored)


@st.cache_resource(show_spinner="Reading runs", max_entries=32)
def _tables_of(name: str, config: Any, root: Path, stamp: object, _instrument: Instrument[Any, R]) -> list[Table[R]]:
    """Cached. stamp: of all runs and artifacts, so that changed ones are read again."""
    return tables_of(_instrument, config, Store(root))


@st.cache_resource(show_spinner=False, max_entries=256)
def _read(config_class: type[C], path: Path) -> C:
    """Cached: the name of a file contains the checksum of its content, so that it never changes."""
    return read_config(path, config_class)


def _show_table(instrument: Instrument[Any, R], table: Table[R]) -> None:
    """The conclusion, figures, the table, findings, and the statistics behind them."""
    lead = Markup("<p class=lead>{} {}</p>").format(table.conclusion, badge("exploratory" if table.exploratory else ""))
    markup(lead)
    figures = instrument.figures(table)
    for name, tab in zip(figures, st.tabs(list(figures)) if figures else [], strict=True):
        with tab:
            draw(figures[name], f"{name}. {table.title}", f"{instrument.name}:{table.title}:{name}")
    markup(table_html(instrument, table))
    findings(table.findings)
    markup(lost_html(table))
    st.caption(plain(f"{table.heading.removeprefix('exploratory: ')}."))


def _watch(runs: Sequence[AnyRun], store: Store, job: Job | None, name: str, alive: bool, finished: int) -> None:
    """Progress, repeated while something runs. Reruns the page whenever a run has ended."""
    progress = progress_of(runs, store)
    now_alive = is_alive(progress, job)
    if now_alive or any(run.state != "finished" for run in progress):
        show_progress(progress, job)
    controls(job, name)
    if now_alive != alive or sum(run.state == "finished" for run in progress) != finished:
        st.rerun()
