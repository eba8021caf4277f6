"""The comparisons of an instrument: start one, watch it, find it again, stop it, resume it, read its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from whence.store.runs import Store
from whence.training.config import AnyRun

C = TypeVar("C", bound=ComparisonConfig)
R = TypeVar("R", bound=AnyRun)
EVERY_SECONDS = 2.0
MISSING = ("not begun", "interrupted")


@dataclass(frozen=True)
class Comparisons(Generic[C, R]):
    """The part of a page that is the same for every instrument."""

    instrument: Instrument[C, R]
    first: Sequence[str]
    """The fields most people set"""
    more: Callable[[C, Table[R], Store], None] = lambda config, table, store: None
    """Draws what this page has beside a table and its figures"""
    start: Mapping[str, object] | None = None
    """What the form begins with, where that is not the defaults"""
    link: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the address of results, beside the comparison's name"""
    offered: Callable[[Store], Offered] = lambda store: {}
    resolve: Callable[[Document, Store], Document] = lambda document, store: document
    """Both: see `form`"""

    def new(self, store: Store) -> None:
        """The form, and the button that starts it."""
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
            st.caption(f"{counted(len(planned), 'run')}. What the store has already is not run again.")
            st.caption(plan_note(instrument, config, store))
        if st.button("Start", type="primary", disabled=config is None, icon=":material/play_arrow:") and config:
            store.prepare()
            st.query_params.update(self._submit(config, save_config(instrument.name, config, store).stem, store))
            st.rerun()

    def results(self, store: Store) -> None:
        """One comparison that the store has, chosen by the reader or by the address."""
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
            empty("None of its runs has finished.", "Start it again under “New”, or resume it above.")
        with st.expander("Configuration"):
            st.json(config.model_dump(mode="json"), expanded=1)

    def _request(self, config: C) -> CompareRequest:
        return CompareRequest(instrument=self.instrument.name, config=config.model_dump(mode="json"))

    def _submit(self, config: C, name: str, store: Store) -> dict[str, str]:
        """Returns the parameters of the address under which it is shown."""
        link = {**self.link, "comparison": name}
        submit(self._request(config), store, title=self.instrument.title(config), link=link)
        return link

    def _run_missing(self, config: C, path: Path, store: Store) -> None:
        """Some of its runs were deleted, or it was interrupted in a terminal."""
        if st.button("Run what is missing", icon=":material/play_arrow:", type="primary"):
            self.resolve(read_document(path, "comparison"), store)  # refuses what a store from elsewhere may name
            self._submit(config, path.stem, store)
            st.rerun()

    def _label(self, path: Path) -> str:
        when = datetime.fromtimestamp(path.stat().st_mtime).strftime("%d %b %H:%M")
        try:
            return f"{self.instrument.title(_read(self.instrument.config, path))} · {when}"
        except UserError:
            return f"{path.stem} · {when} · cannot be read"

    def _tables(self, config: C, runs: Sequence[R], store: Store) -> None:
        instrument = self.instrument
        stamp = (*(tuple(store.folder(run.id).stamp()) for run in runs), *(path.name for path in artifact_paths(store)))
        tables = _tables_of(instrument.name, config, store.root, stamp, instrument)
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


@st.cache_resource(show_spinner="Reading runs", max_entries=16)
def _tables_of(name: str, config: Any, root: Path, stamp: object, _instrument: Instrument[Any, R]) -> list[Table[R]]:
    """stamp: of all its runs and of what was measured, so that what changed is read again."""
    return tables_of(_instrument, config, Store(root))


@st.cache_resource(show_spinner=False, max_entries=256)
def _read(config_class: type[C], path: Path) -> C:
    """A file's name has the checksum of its content: it never changes."""
    return read_config(path, config_class)


def _show_table(instrument: Instrument[Any, R], table: Table[R]) -> None:
    """Findings, table and figures, as the report has them."""
    note = Markup(" <span class=note>{}</span>").format(table.heading.removeprefix("exploratory: "))
    markup(badge("exploratory" if table.exploratory else "") + note)
    findings(table.findings)
    markup(table_html(instrument, table) + lost_html(table))
    figures = instrument.figures(table)
    for name, tab in zip(figures, st.tabs(list(figures)) if figures else [], strict=True):
        with tab:
            draw(figures[name], f"{name}. {table.title}", f"{instrument.name}:{table.title}:{name}")


def _watch(runs: Sequence[AnyRun], store: Store, job: Job | None, name: str, alive: bool, finished: int) -> None:
    """Repeated while something runs; the whole page is made again when a run has ended or everything has."""
    progress = progress_of(runs, store)
    now_alive = is_alive(progress, job)
    if now_alive or any(run.state != "finished" for run in progress):
        show_progress(progress, job)
    controls(job, name)
    if now_alive != alive or sum(run.state == "finished" for run in progress) != finished:
        st.rerun()
