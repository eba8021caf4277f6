"""Presets side by side, over paired seeds, and which of them beat what they have to beat."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whence import stats
from whence.features.comparison import controlled_pairs
from whence.features.measures import stability
from whence.features.run import Run
from whence.features.stored import load
from whence.runs.looks import NEVER, Earlier, consult
from whence.runs.outcomes import results_of
from whence.runs.store import Store

NEAR = 0.05
"""How far from the wanted number of active features still counts as that."""
MATCHABLE = 4096
"""Features, above which matching the directions of two seeds would take longer than training them."""
Metric = Callable[[Mapping[str, Any]], float | None]

COLUMNS: dict[str, Metric] = {
    "FVU": lambda m: m["fvu"],
    "L0": lambda m: m["l0"],
    "dead": lambda m: m["dead"],
    "FVU lifted": lambda m: m["lifted"]["fvu"],
    "L0 lifted": lambda m: m["lifted"]["l0"],
    "bound": lambda m: m["lifted"]["fidelity"]["bound"],
    "fidelity": lambda m: m["lifted"]["fidelity"]["median"],
    "retention": lambda m: m["lifted"].get("retention", {}).get("median"),
    "chance": lambda m: m["lifted"].get("retention", {}).get("chance"),
    "free found": lambda m: m.get("recovery", {}).get("free", {}).get("matched"),
    "bound found": lambda m: m.get("recovery", {}).get("bound", {}).get("matched"),
}
"""What is measured of a run, by name. "bound": position-bound features, with masks lifted."""


@dataclass(frozen=True)
class Row:
    """One preset over all seeds. What failed is named, and is in no average."""

    name: str
    runs: tuple[str, ...]
    metrics: Mapping[int, dict[str, Any]]
    """By seed: what the last evaluation found"""
    failed: Mapping[str, str]
    parameters: int
    sparsity: str
    wanted: float
    """Active features per state that were asked for; 0: no number"""
    alike: float | None
    """Mean cosine of the directions that two seeds learn, matched one to one"""
    diverged: frozenset[int] = frozenset()
    """Seeds on which it failed by its own numbers"""
    ended: frozenset[str] = frozenset()
    """Runs that finished or diverged"""

    def values(self, column: str) -> dict[int, float]:
        """By seed."""
        found = {seed: COLUMNS[column](metrics) for seed, metrics in self.metrics.items()}
        return {seed: float(value) for seed, value in found.items() if value is not None}

    def mean(self, column: str) -> float | None:
        values = list(self.values(column).values())
        return stats.mean(values) if values else None

    def interval(self, column: str) -> tuple[float, float] | None:
        """95 %, over seeds."""
        return stats.mean_interval(list(self.values(column).values()))

    @property
    def matched(self) -> bool:
        """Whether it has about the number of active features that was wanted."""
        return not self.wanted or abs((self.mean("L0") or 0) / self.wanted - 1) <= NEAR

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "runs": list(self.runs),
            "failed": dict(self.failed),
            "parameters": self.parameters,
            "alike": self.alike,
            **{
                column: {"mean": self.mean(column), "per_seed": self.values(column), "interval": self.interval(column)}
                for column in COLUMNS
                if self.values(column)
            },
        }


@dataclass(frozen=True)
class Table:
    title: str
    rows: tuple[Row, ...]
    on: str = ""
    """Held-out data that all seeds share."""
    earlier: Earlier = NEVER
    """What was shown of the same presets before."""

    @property
    def columns(self) -> list[str]:
        """Those that some run has."""
        return [column for column in COLUMNS if any(row.values(column) for row in self.rows)]

    @property
    def findings(self) -> list[str]:
        lines = [f"Failed, in no average: {row.name} ({len(row.failed)})." for row in self.rows if row.failed]
        missed = [row for row in self.rows if row.metrics and not row.matched]
        if missed:
            told = ", ".join(f"{row.name} ({row.mean('L0'):.1f} of {row.wanted:g})" for row in missed)
            lines.append(f"Not at the wanted number of active features, and not compared: {told}.")
        return lines + stats.report(
            self.comparisons,
            design=self.design,
            earlier=self.earlier.seeds,
            untested=self.earlier.why_not("fixed", complete=self.complete),
        )

    @property
    def complete(self) -> bool:
        """All planned runs have ended."""
        return all(len(row.metrics) + len(row.failed) == len(row.runs) for row in self.rows)

    @property
    def design(self) -> stats.TestDesign | None:
        """None: not tested."""
        return self.earlier.design("fixed", complete=self.complete)

    @property
    def comparisons(self) -> list[stats.Comparison]:
        """Every preset against the baselines of its sparsity. Those not at the wanted L0 are in the family, unshown."""
        if self.design is None:
            return []
        scores = {row.name: row.values("FVU") for row in self.rows}
        by_name = {row.name: row for row in self.rows}
        failed = {row.name: row.diverged for row in self.rows}
        family = [
            stats.pair(stats.FVU, a, b, scores, failed=failed, on=self.on)
            for a, b in controlled_pairs({row.name: row.sparsity for row in self.rows})
        ]
        compared = stats.compare(family, design=self.design, others=self.earlier.comparisons)
        return [c for c in compared if c.n and by_name[c.a].matched and by_name[c.b].matched]

    @property
    def exploratory(self) -> bool:
        """Whether there are too few seeds for any verdict."""
        seeds = min((len(row.metrics) for row in self.rows if row.metrics), default=0)
        return 0 < seeds < stats.SEEDS_TO_DECIDE

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "findings": self.findings,
            "comparisons": [c.to_json() for c in self.comparisons],
            "rows": [row.to_json() for row in self.rows],
        }


def cell(value: float | None, column: str) -> str:
    """As a table shows it."""
    if value is None:
        return "–"
    if column in ("L0", "L0 lifted", "bound"):
        return f"{value:.1f}"
    return (
        f"{100 * value:.1f} %" if column == "dead" else f"{value:.4f}" if column.startswith("FVU") else f"{value:.3f}"
    )


def tabulate(title: str, plan: Mapping[str, Sequence[Run]], store: Store, ends: Mapping[str, str]) -> Table:
    return table_of(title, plan, tuple(_row(name, runs, store, ends) for name, runs in plan.items()), store)


def table_of(title: str, plan: Mapping[str, Sequence[Run]], rows: tuple[Row, ...], store: Store) -> Table:
    """Of rows that are known already."""
    controlled = controlled_pairs({name: runs[0].model.sparsity.name for name, runs in plan.items()})
    pairs = [(plan[a][0], plan[b][0], "") for a, b in controlled]
    ended = frozenset().union(*(row.ended for row in rows))
    earlier = consult([run for runs in plan.values() for run in runs], ended, pairs, store)
    return Table(title, rows, next(iter(plan.values()))[0].data.build().held_out_name, earlier)


def _row(name: str, runs: Sequence[Run], store: Store, ends: Mapping[str, str]) -> Row:
    results = results_of(store, runs, ends)
    done = [run.id for run in runs if run.seed in results.metrics]
    model = runs[0].model
    learned = [load(store, run)[0].directions.detach() for run in done[:2]] if model.size <= MATCHABLE else []
    alike = [stability(one, other) for one, other in itertools.combinations(learned, 2)]
    return Row(
        name,
        tuple(run.id for run in runs),
        results.metrics,
        results.failed,
        runs[0].parameters(),
        model.sparsity.name,
        model.sparsity.options().get("k") or model.sparsity.options().get("l0", 0),
        stats.mean(alike) if alike else None,
        results.diverged,
        results.ended,
    )
