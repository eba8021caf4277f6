"""The table of a comparison: one row per variant, verdicts on their differences.

A table is data that is made from the store (`whence.experiments.tabulate`). The terminal, pages, CSV and JSON read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from whence import stats
from whence.experiments.results import RunResult
from whence.training.config import AnyRun

R = TypeVar("R", bound=AnyRun)
Family = Literal["table", "sheet"]
"""The family over which the error is controlled: the comparisons of one table, or of all tables made together."""


@dataclass(frozen=True)
class Criterion:
    """The metric and the column by which variants are compared."""

    metric: stats.Metric
    column: str
    part: str = ""
    """Which scores these are, for sentences: `id`, `at mask ratio 0.5`"""
    look: str = ""
    """The same for the record of shown results, where `part` is ambiguous"""


@dataclass(frozen=True)
class PlannedTable(Generic[R]):
    """The runs of a table and the comparisons of its rows, determined before any run."""

    title: str
    variants: Mapping[str, Sequence[R]]
    """By name, one run per seed"""
    pairs: Sequence[tuple[str, str]]
    criteria: Sequence[Criterion]
    """Each pair is compared by each criterion"""
    on: str = ""
    """Held-out data that all seeds share. Verdicts are then limited to these data"""

    @property
    def contrasts(self) -> list[tuple[str, str, Criterion]]:
        return [(a, b, criterion) for criterion in self.criteria for a, b in self.pairs]

    @property
    def runs(self) -> list[R]:
        """Each run once. Seeds vary slowest, so that an interrupted comparison has complete seeds."""
        longest = max(map(len, self.variants.values()), default=0)
        ordered = (runs[place] for place in range(longest) for runs in self.variants.values() if place < len(runs))
        return list({run.id: run for run in ordered}.values())

    @property
    def run(self) -> R:
        """Any run of the table."""
        return next(iter(self.variants.values()))[0]


@dataclass(frozen=True)
class Cell:
    """One entry of a row: a number over seeds, or text."""

    text: str = ""
    per_seed: Mapping[int, float] = field(default_factory=dict[int, float])
    interval: tuple[float, float] | None = None
    """95 %, of the mean over seeds"""
    verdict: str = ""

    @property
    def words(self) -> str:
        return " ".join(filter(None, (self.text, self.verdict)))

    @property
    def mean(self) -> float | None:
        return stats.mean(list(self.per_seed.values())) if self.per_seed else None

    @property
    def baseline_mark(self) -> float | None:
        """The shortcut baseline, which strips of seeds mark; None if there is none."""
        return None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"text": self.text}
        if self.per_seed:
            document["mean"] = self.mean
            document["interval"] = list(self.interval) if self.interval else None
            document["per_seed"] = {str(seed): value for seed, value in self.per_seed.items()}
        return document | ({"verdict": self.verdict} if self.verdict else {})


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    detail: bool = False
    """Shown on pages, not in the terminal"""
    span: tuple[float, float] | None = None
    """Range of the strip on which pages draw every seed"""


@dataclass(frozen=True)
class Row(Generic[R]):
    """One variant over all seeds."""

    name: str
    results: tuple[RunResult[R], ...]
    cells: Mapping[str, Cell] = field(default_factory=dict[str, Cell])
    """By column"""

    @property
    def finished(self) -> list[RunResult[R]]:
        return [result for result in self.results if result.state == "finished"]

    @property
    def failed(self) -> dict[str, str]:
        """The reasons, by run id."""
        return {result.run.id: result.reason for result in self.results if result.state == "failed"}

    @property
    def damaged(self) -> dict[str, str]:
        return {result.run.id: result.reason for result in self.results if result.state == "damaged"}

    @property
    def diverged(self) -> list[int]:
        """Seeds of diverged runs."""
        return [result.run.seed for result in self.results if result.diverged]

    @property
    def complete(self) -> bool:
        """Whether every planned run has ended."""
        return all(result.state in ("finished", "failed", "damaged") for result in self.results)

    @property
    def state(self) -> str:
        """State of a row without results."""
        states = {result.state for result in self.results}
        known = {"failed": "failed", "damaged": "damaged", "unfinished": "not finished"}
        return next((text for state, text in known.items() if state in states), "not run")

    @property
    def dots(self) -> str:
        marks = {"finished": "●", "failed": "✕", "damaged": "✕"}
        return "".join(sorted((marks.get(result.state, "○") for result in self.results), key="●✕○".index))

    @property
    def seconds(self) -> float:
        return sum(result.seconds for result in self.results)

    def cell(self, column: str) -> Cell:
        return self.cells.get(column, Cell())

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "runs": [result.run.id for result in self.results],
            "seeds": [result.run.seed for result in self.finished],
            "failed": self.failed,
            "damaged": self.damaged,
            "seconds": self.seconds,
            "cells": {key: cell.to_json() for key, cell in self.cells.items()},
        }


@dataclass(frozen=True)
class Table(Generic[R]):
    """The rows of one planned table and the verdicts on their differences."""

    planned: PlannedTable[R]
    columns: tuple[Column, ...]
    rows: tuple[Row[R], ...]
    comparisons: tuple[stats.Comparison, ...] = ()
    """Comparisons of ranked rows, in the order of the plan"""
    design: stats.TestDesign = "fixed"
    family: int = 0
    """Number of comparisons over which the error is controlled"""
    family_name: Family = "table"
    earlier: int = 0
    """Number of seeds of another plan whose results were shown before"""
    untested: str = ""
    """Why nothing is tested; empty if the table is tested"""
    caption: str = ""
    conclusion: str = ""
    """The result in one sentence"""
    findings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.planned.title

    @property
    def filled_columns(self) -> list[Column]:
        """Columns in which any row has an entry."""
        return [column for column in self.columns if any(row.cell(column.key).words for row in self.rows)]

    def row(self, name: str) -> Row[R]:
        return next(row for row in self.rows if row.name == name)

    def pairs(self, part: str = "") -> list[stats.Comparison]:
        """Comparisons of one part."""
        return [c for c in self.comparisons if c.part == part]

    @property
    def _paired(self) -> list[int]:
        return [c.n for c in self.comparisons] or [len(row.finished) for row in self.rows]

    @property
    def seeds(self) -> int:
        """Largest number of paired seeds; where nothing is compared, of finished runs of a row."""
        return max(self._paired, default=0)

    @property
    def exploratory(self) -> bool:
        return self.seeds < stats.SEEDS_TO_DECIDE

    @property
    def heading(self) -> str:
        """The statistics of the table as a sentence."""
        return stats.heading(
            self.seeds,
            self.family,
            [criterion.metric for criterion in self.planned.criteria],
            design=self.design,
            family=self.family_name,
            earlier=self.earlier,
            fewest=min(self._paired, default=0),
            on=self.planned.on,
            untested=self.untested,
        )

    @property
    def decided(self) -> bool:
        """Whether every comparison is decided."""
        return all(c.decided for c in self.comparisons)

    @property
    def lost(self) -> list[str]:
        """Failed and damaged runs as sentences."""
        lines: list[str] = []
        for kind, what in (("failed", "Failed"), ("damaged", "Damaged")):
            counts = [f"{row.name} ({len(getattr(row, kind))})" for row in self.rows if getattr(row, kind)]
            hint = " ('whence runs verify' gives details)" if kind == "damaged" else ""
            lines += [f"{what} runs, excluded from averages: {', '.join(counts)}{hint}."] if counts else []
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "seeds": self.seeds,
            "heading": self.heading,
            "conclusion": self.conclusion,
            "findings": list(self.findings),
            "columns": [{"key": column.key, "title": column.title} for column in self.columns],
            "rows": [row.to_json() for row in self.rows],
            "caption": self.caption,
            "design": self.design,
            "family": self.family,
            "comparisons": [c.to_json() for c in self.comparisons],
        }

    def _repr_html_(self) -> str:
        from whence.experiments.notebook import table_fragment

        return table_fragment(self)


def over_seeds(values: Mapping[int, float], digits: int = 3, *, scale: float = 1.0, unit: str = "") -> Cell:
    """A cell with the mean over seeds and its interval; empty where no seed has a value."""
    if not values:
        return Cell("–")
    interval = stats.mean_interval(list(values.values()))
    text = f"{scale * stats.mean(list(values.values())):.{digits}f}"
    if interval:
        text += f" [{scale * interval[0]:.{digits}f}, {scale * interval[1]:.{digits}f}]"
    return Cell(text + unit, values, interval)
