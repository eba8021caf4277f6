"""Variants of a model side by side: quality, size and time, over paired seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whence import stats
from whence.fields.cost import encoding_peak, milliseconds
from whence.fields.run import Run
from whence.fields.stored import load
from whence.runs.looks import NEVER, Earlier, consult
from whence.runs.outcomes import results_of
from whence.runs.store import Store


@dataclass(frozen=True)
class Row:
    """One variant over all seeds. Runs that failed are named; they, and those that did not finish, enter no average."""

    name: str
    runs: tuple[str, ...]
    metrics: Mapping[int, dict[str, Any]]
    """By seed: what the last evaluation found"""
    failed: Mapping[str, str]
    parameters: int
    cost: Mapping[str, float]
    """Milliseconds to encode one signal, and to decode it at its own resolution, and MiB to encode it; empty where that
    was not measured"""
    diverged: frozenset[int] = frozenset()
    """Seeds on which it failed by its own numbers"""
    ended: frozenset[str] = frozenset()
    """Runs that finished or diverged"""

    def quality(self, scale: str, split: str = "test", output: str = "field") -> dict[int, float]:
        """PSNR by seed."""
        return {seed: found[split]["scales"][scale][output]["psnr"] for seed, found in self.metrics.items()}

    def mean(self, scale: str, split: str = "test") -> float | None:
        values = list(self.quality(scale, split).values())
        return stats.mean(values) if values else None

    def interval(self, scale: str) -> tuple[float, float] | None:
        """95 %, over seeds."""
        return stats.mean_interval(list(self.quality(scale).values()))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "runs": list(self.runs),
            "failed": dict(self.failed),
            "parameters": self.parameters,
            "cost": dict(self.cost),
            "psnr": {
                s: {
                    "mean": self.mean(s),
                    "per_seed": self.quality(s),
                    "interval": self.interval(s),
                    "validation": self.mean(s, "validation"),
                }
                for s in self.scales
            },
        }

    @property
    def scales(self) -> list[str]:
        return list(next(iter(self.metrics.values()))["test"]["scales"]) if self.metrics else []


@dataclass(frozen=True)
class Table:
    """The first variant is what the others are held against."""

    title: str
    rows: tuple[Row, ...]

    on: str = ""
    """Held-out data that all seeds share."""
    earlier: Earlier = NEVER
    """What was shown of the same variants before."""

    @property
    def findings(self) -> list[str]:
        """At the input's own resolution, every variant against the first."""
        lines = [f"Failed, in no average: {row.name} ({len(row.failed)})." for row in self.rows if row.failed]
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
        if self.design is None:
            return []
        scale = next((row.scales[0] for row in self.rows if row.metrics), "1")
        scores = {row.name: row.quality(scale) for row in self.rows}
        failed = {row.name: row.diverged for row in self.rows}
        pairs = [
            stats.pair(stats.PSNR, a, b, scores, failed=failed, part=f"at ×{scale}", on=self.on)
            for a, b in stats.against(self.rows[0].name, scores)
        ]
        return [c for c in stats.compare(pairs, design=self.design, others=self.earlier.comparisons) if c.n]

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "findings": self.findings,
            "comparisons": [c.to_json() for c in self.comparisons],
            "rows": [row.to_json() for row in self.rows],
        }


def tabulate(
    title: str,
    plan: Mapping[str, Sequence[Run]],
    store: Store,
    ends: Mapping[str, str] = {},
    costs: Mapping[str, Mapping[str, float]] | None = None,
) -> Table:
    """costs: by variant, where they were measured before; else each takes a process of its own, and seconds."""
    rows = tuple(_row(name, runs, store, ends, costs) for name, runs in plan.items())
    first = {name: runs[0] for name, runs in plan.items()}
    pairs = [(first[a], first[b], "") for a, b in stats.against(rows[0].name, first)]
    ended = frozenset().union(*(row.ended for row in rows))
    earlier = consult([run for runs in plan.values() for run in runs], ended, pairs, store)
    return Table(title, rows, next(iter(plan.values()))[0].data.build().held_out_name, earlier)


def _row(
    name: str,
    runs: Sequence[Run],
    store: Store,
    ends: Mapping[str, str],
    costs: Mapping[str, Mapping[str, float]] | None,
) -> Row:
    results = results_of(store, runs, ends)
    done = next((run for run in runs if run.seed in results.metrics), None)
    if costs is None:
        costs = {} if done is None else {name: _cost(store, done)}
    return Row(
        name,
        tuple(run.id for run in runs),
        results.metrics,
        results.failed,
        runs[0].parameters(),
        costs.get(name, {}),
        results.diverged,
        results.ended,
    )


def _cost(store: Store, run: Run) -> dict[str, float]:
    model, _ = load(store, run.id)
    return {**milliseconds(model), "memory": encoding_peak(model.spec, model.channels, model.size)}
