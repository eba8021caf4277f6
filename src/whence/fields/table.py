"""Variants of a model side by side: quality, size and time, over paired seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whence import stats
from whence.fields.cost import encoding_peak, milliseconds
from whence.fields.run import Run
from whence.fields.stored import load
from whence.runs.outcomes import latest
from whence.runs.store import Store

TIE = 0.2
"""Decibels within which two variants count as equal."""


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

    @property
    def findings(self) -> list[str]:
        """At the input's own resolution, pair by pair with the first."""
        first = self.rows[0]
        whole = [row for row in self.rows if row.metrics]
        lines = [f"Failed, in no average: {row.name} ({len(row.failed)})." for row in self.rows if row.failed]
        shared = set.intersection(*(set(row.metrics) for row in whole)) if whole else set()
        if first not in whole or len(whole) < 2 or not shared:
            return lines
        scale = first.scales[0]
        seeds = sorted(shared)
        # A tenth of a decibel counts as a hundredth: the margin of a tie is then TIE decibels.
        scores = {row.name: [row.quality(scale)[s] * stats.TIE_MARGIN / TIE for s in seeds] for row in whole}
        compared = stats.compare(scores).values()
        for row in whole[1:]:
            found = next(c for c in compared if {c.a, c.b} == {row.name, first.name})
            gap = stats.mean([row.quality(scale)[s] - first.quality(scale)[s] for s in seeds])
            winner = f"{found.winner} is better" if found.winner else found.verdict
            lines.append(f"{row.name}: {gap:+.2f} dB against {first.name} at ×{scale} ({winner}).")
        needed = stats.seeds_needed(contenders=len(whole))
        if len(seeds) < needed:
            lines.append(f"{len(seeds)} paired seeds: exploratory; {needed} are needed to decide among {len(whole)}.")
        return lines

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "findings": self.findings, "rows": [row.to_json() for row in self.rows]}


def tabulate(
    title: str,
    plan: Mapping[str, Sequence[Run]],
    store: Store,
    ends: Mapping[str, str] = {},
    costs: Mapping[str, Mapping[str, float]] | None = None,
) -> Table:
    """costs: by variant, where they were measured before; else each takes a process of its own, and seconds."""
    return Table(title, tuple(_row(name, runs, store, ends, costs) for name, runs in plan.items()))


def _row(
    name: str,
    runs: Sequence[Run],
    store: Store,
    ends: Mapping[str, str],
    costs: Mapping[str, Mapping[str, float]] | None,
) -> Row:
    metrics, failed = latest(store, runs, ends)
    done = next((run for run in runs if run.seed in metrics), None)
    if costs is None:
        costs = {} if done is None else {name: _cost(store, done)}
    return Row(name, tuple(run.id for run in runs), metrics, failed, runs[0].parameters(), costs.get(name, {}))


def _cost(store: Store, run: Run) -> dict[str, float]:
    model, _ = load(store, run.id)
    return {**milliseconds(model), "memory": encoding_peak(model.spec, model.channels, model.size)}
