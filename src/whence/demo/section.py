"""What a section of the tour consists of: what it requires, its progress and its content."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import plotly.graph_objects as go
from markupsafe import Markup

from whence.errors import UserError
from whence.execution.events import Event, OnEvent
from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import ComparisonResult, execute_runs, run_comparison
from whence.experiments.instrument import ComparisonConfig, Instrument
from whence.report.shell import Script, plot
from whence.store.runs import Store
from whence.system import packaged_version
from whence.training.config import AnyRun

Size = Literal["full", "quick"]


class SectionError(Exception):
    """A section cannot be shown, for the stated reason."""


class MissingExtraError(SectionError):
    """Packages are missing that are no core dependencies; the command installs them."""

    def __init__(self, what: str, command: str) -> None:
        super().__init__(f"{what} needs packages that are not installed.")
        self.command = command


@dataclass(frozen=True)
class Requirement:
    """A package that is no core dependency, by the name that pip knows."""

    package: str
    module: str = ""
    """What is imported of it; empty: only its files are read, so that it is installed without its dependencies"""

    @property
    def installed(self) -> bool:
        if not self.module:
            return bool(packaged_version(self.package))
        try:
            return importlib.util.find_spec(self.module) is not None
        except ImportError:
            return False


def install_command(requirements: Sequence[Requirement]) -> str:
    """For those that are missing; empty if none is."""
    missing = [requirement for requirement in requirements if not requirement.installed]
    imported = " ".join(each.package for each in missing if each.module)
    files = " ".join(each.package for each in missing if not each.module)
    parts = [f"pip install {imported}" * bool(imported), f"pip install --no-deps {files}" * bool(files)]
    return " && ".join(filter(None, parts))


class SectionProgress:
    """How far a section is: phases one after the other, each with its share of the section's time."""

    def __init__(self, report: Callable[[float, float, str], None]) -> None:
        """report: receives the share of the section that is done, the share at the end of the phase, and a message."""
        self._report = report
        self._begin = self._end = self._done = 0.0

    def phase(self, share: float, message: str) -> None:
        self._begin = self._done = self._end
        self._end += share
        self.note(message)

    def note(self, message: str) -> None:
        """What is being done. An `OnProgress` callback."""
        self._report(self._done, self._end, message)

    @contextmanager
    def watch(self, runs: Sequence[AnyRun], workers: int, threads: int) -> Generator[OnEvent]:
        """Progress of runs, by their steps. A `Watch` callback."""
        steps = {run.id: run.training.steps for run in runs}
        done, ended = dict.fromkeys(steps, 0), set[str]()

        def on_event(event: Event) -> None:
            if event.kind == "stopping":
                self.note("stopping: each run writes a checkpoint")
            if event.run not in steps:
                return
            done[event.run] = steps[event.run] if event.end else event.step
            ended.update([event.run] if event.end else [])
            share = sum(done.values()) / max(1, sum(steps.values()))
            self._done = self._begin + share * (self._end - self._begin)
            step = f"{sum(done.values()):,} of {sum(steps.values()):,} steps"
            self.note(f"training, {len(ended)} of {len(steps)} models done, {step}")

        yield on_event


@dataclass(frozen=True)
class Context:
    """What a section is given."""

    out: Path
    """Directory of the page and of what it shows beside the store"""
    store: Store
    size: Size
    options: ExecutionOptions
    progress: SectionProgress

    @property
    def store_option(self) -> list[str]:
        """What a command needs to find the runs of the tour."""
        return ["--store", str(self.store.root)]

    def compare(self, instrument: Instrument[Any, Any], config: ComparisonConfig) -> ComparisonResult[Any]:
        """As `whence INSTRUMENT compare`."""
        result = run_comparison(
            instrument,
            config,
            self.store,
            self.options,
            watch=self.progress.watch,
            on_progress=self.progress.note,
        )
        _check_ends(result.ends)
        lost = [line for table in result.tables for line in table.lost]
        if lost or result.problems:
            raise SectionError(" ".join([*lost, *result.problems]))
        return result

    def train(self, run: AnyRun) -> None:
        """As `whence INSTRUMENT train`."""
        _check_ends(execute_runs([run], self.store, self.options, self.progress.watch))


def _check_ends(ends: Mapping[str, str]) -> None:
    if "interrupted" in ends.values():
        raise KeyboardInterrupt
    for run, end in ends.items():
        if end not in ("finished", "skipped"):
            raise SectionError(f"Run {run} ended as {end}; 'whence runs show {run}' gives details.")


@dataclass(frozen=True)
class Content:
    """What a section came to."""

    headline: str
    """A few words for the card of the section, at the head of the page, from what was computed"""
    picture: Markup
    """The figure of the card"""
    verdict: str
    """What the section shows, in a sentence or two, from what was computed"""
    body: Sequence[str]
    """HTML and scripts"""
    command: str
    """Computes the same on its own"""
    further: Mapping[str, str]
    """By command, what it adds"""
    runs: Sequence[str] = ()
    """Ids of those that were trained for it"""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For --json"""

    @property
    def html(self) -> list[Markup]:
        """The body without its scripts."""
        return [Markup(part) for part in self.body if not isinstance(part, Script)]


@dataclass(frozen=True)
class Section:
    """One part of the tour."""

    name: str
    """The instrument"""
    title: str
    question: str
    build: Callable[[Context], Content]
    seconds: Mapping[Size, float]
    """On two idle cores, estimated from CPU time; only the time left that is shown depends on it"""
    requires: Sequence[Requirement] = ()

    def run(self, context: Context) -> Content:
        if command := install_command(self.requires):
            raise MissingExtraError(f"The section on {self.name}", command)
        try:
            return self.build(context)
        except UserError as problem:
            raise SectionError(str(problem)) from problem


def small(figure: go.Figure, height: int = 190, **layout: Any) -> Markup:
    """A figure of an instrument for a card: the same data without titles, legend and menus."""
    copy = go.Figure(figure)
    margin = {"l": 34, "r": 8, "t": 8, "b": 26}
    copy.update_layout(height=height, margin=margin, showlegend=False)
    copy.layout.annotations, copy.layout.updatemenus = (), ()
    copy.update_xaxes(title=None)
    copy.update_yaxes(title=None, nticks=4)
    copy.update_traces(showscale=False, selector={"type": "heatmap"})
    copy.update_traces(marker_size=4, selector={"type": "scatter"})
    return plot(copy.update_layout(**layout))
