"""Cures side by side: what each does to the leak, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence import stats
from whence.leak import RATIOS
from whence.leak.run import Run
from whence.leak.verdict import DEAD, MOVED, leaks
from whence.runs.files import Corrupt
from whence.runs.store import Store
from whence.stats.pairs import half_widths

SHOWN = tuple(f"{ratio:g}" for ratio in RATIOS)
SHRUNK = 0.5
"""A cure shrinks a leak if it leaves less than this share of it."""


@dataclass(frozen=True)
class Row:
    """One cure over all seeds. Failed, damaged and unfinished runs are named, and enter no average."""

    cure: str
    runs: tuple[str, ...]
    metrics: Mapping[int, dict[str, Any]]
    """By seed, by ratio"""
    failed: Mapping[str, str]

    def values(self, ratio: str, *path: str) -> list[float] | None:
        """One number per seed; None where it is undefined in any, as correlations of equal predictions are."""
        found = [at(metrics[ratio], path) for metrics in self.metrics.values()]
        return None if not found or any(value is None for value in found) else [float(value) for value in found]

    def mean(self, ratio: str, *path: str) -> float | None:
        values = self.values(ratio, *path)
        return None if values is None else stats.mean(values)

    @property
    def outcomes(self) -> list[str]:
        """Leaky, traces or clean, per seed."""
        return [leaks(metrics) for metrics in self.metrics.values()]

    @property
    def verdict(self) -> str:
        if not self.metrics:
            return "failed" if self.failed else "not run"
        worst = max(self.outcomes, key=("clean", "traces", "leaky").index)
        dead = (self.mean("0.5", "error") or 0) >= DEAD
        return f"{worst}, dead" if dead else worst

    def to_json(self) -> dict[str, Any]:
        return {
            "cure": self.cure,
            "runs": list(self.runs),
            "seeds": list(self.metrics),
            "failed": dict(self.failed),
            "verdict": self.verdict,
            "outcomes": self.outcomes,
            "ratios": {ratio: self._numbers(ratio) for ratio in SHOWN} if self.metrics else {},
        }

    def _numbers(self, ratio: str) -> dict[str, Any]:
        paths = {
            "error": ("error",),
            "correlation": ("correlation",),
            "correlation_chance": ("correlation_chance",),
            "similarity": ("similarity",),
            "spread": ("spread",),
            "eta2": ("eta2",),
            "r2": ("probe", "r2"),
            "best_r2": ("probe", "best"),
            "moved": ("shift", "of_prediction"),
        }
        return {
            name: {"mean": self.mean(ratio, *path), "per_seed": self.values(ratio, *path)}
            for name, path in paths.items()
        }


@dataclass(frozen=True)
class Table:
    """One model on one data set; the first cure is what the others are held against."""

    title: str
    rows: tuple[Row, ...]

    @property
    def seeds(self) -> int:
        return min((len(row.metrics) for row in self.rows), default=0)

    def cost(
        self, row: Row, ratio: str, reference: Row | None = None
    ) -> tuple[float, tuple[float, float] | None] | None:
        """By which factor the error changes, and its 95 % interval over paired seeds."""
        reference = reference or self.rows[0]
        shared = sorted(set(row.metrics) & set(reference.metrics))
        if not shared:
            return None
        logs = np.array(
            [[math.log(row.metrics[s][ratio]["error"] / reference.metrics[s][ratio]["error"])] for s in shared]
        )
        half = half_widths(logs, 1 - stats.ALPHA)
        mean = float(logs.mean())
        between = None if half is None else (math.exp(mean - float(half[0])), math.exp(mean + float(half[0])))
        return math.exp(mean), between

    @property
    def findings(self) -> list[str]:
        reference = self.rows[0]
        lines = [f"{row.cure}: {self.effect(row)}." for row in self.rows if row.metrics]
        failed = [f"{row.cure} ({len(row.failed)})" for row in self.rows if row.failed]
        lines += [f"Failed or damaged runs, in no average: {', '.join(failed)}."] if failed else []
        if self.seeds < stats.SEEDS_TO_DECIDE:
            lines.append(
                f"{self.seeds} paired seeds: exploratory; {stats.SEEDS_TO_DECIDE} are needed to decide anything."
            )
        return [
            *lines,
            f"Costs are held against {reference.cure}: factors of the error, with 95 % intervals over seeds.",
        ]

    def effect(self, row: Row) -> str:
        """In words: what became of the leak, then what it costs."""
        reference = self.rows[0]
        words = [self._leak(row, reference)]
        if (row.mean("0.5", "error") or 0) >= DEAD:
            words.append("the model is destroyed: it reconstructs nothing")
        elif row is not reference:
            words.append(
                "error " + ", ".join(f"{_factor(self.cost(row, ratio))} at {ratio}" for ratio in ("0.5", "0.9"))
            )
        return "; ".join(words)

    def _leak(self, row: Row, reference: Row) -> str:
        if all(outcome == "clean" for outcome in row.outcomes):
            return "removes it: predictions do not depend on where tokens are"
        spread, before = row.mean("1", "spread") or 0.0, reference.mean("1", "spread") or 0.0
        moved = max(row.mean(ratio, "shift", "of_prediction") or 0.0 for ratio in SHOWN if ratio != "1")
        changes = f"changes {100 * moved:.1f} % of the predictions' variance"
        if row is reference:
            apart = f"with everything hidden, predictions differ by {_share(spread)} of the targets' variance"
            return f"{apart}; moving everything {changes}"
        left = f"moving everything still {changes}"
        told, chance, shape = (
            row.mean("1", "correlation"),
            row.mean("1", "correlation_chance"),
            row.mean("1", "probe", "best"),
        )
        if told is not None and chance is not None and shape is not None and told <= chance and shape >= 0.5:
            return f"hides its linear part only (position is still read off with R² {shape:.2f}); {left}"
        if spread < SHRUNK * before:
            shrunk = f"to {_share(spread)} from {_share(before)} of the targets' variance"
            return f"shrinks it ({shrunk}) without removing it; {left}"
        return f"does not stop it; {left}" if moved >= MOVED else f"leaves traces; {left}"

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "seeds": self.seeds,
            "findings": self.findings,
            "rows": [
                {**row.to_json(), "cost": {ratio: self.cost(row, ratio) for ratio in SHOWN} if row.metrics else {}}
                for row in self.rows
            ],
        }


def tabulate(runs: Sequence[Run], store: Store) -> Table:
    cures: dict[str, list[Run]] = {}
    for run in runs:
        cures.setdefault(run.cure, []).append(run)
    first = runs[0]
    return Table(
        f"{first.data} · {first.model.backbone}", tuple(_row(cure, members, store) for cure, members in cures.items())
    )


def _row(cure: str, runs: Sequence[Run], store: Store) -> Row:
    metrics: dict[int, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for run in runs:
        try:
            status = store.folder(run.id).status()
        except FileNotFoundError:
            continue
        except Corrupt as damage:
            failed[run.id] = str(damage)
            continue
        if status["state"] == "finished":
            metrics[run.seed] = status["latest"]["ratios"]
        elif status["state"] == "failed":
            failed[run.id] = status["error"]["message"]
    return Row(cure, tuple(run.id for run in runs), metrics, failed)


def at(found: Any, path: Sequence[str]) -> Any:
    """A number in nested measures; None where any part of the way is undefined."""
    for name in path:
        found = None if found is None else found[name]
    return found


def _factor(cost: tuple[float, tuple[float, float] | None] | None) -> str:
    if cost is None:
        return "unknown"
    mean, between = cost
    return f"×{mean:.3f}" + (f" [{between[0]:.3f}, {between[1]:.3f}]" if between else "")


def _share(value: float) -> str:
    return f"{100 * value:.2g} %" if value >= 1e-4 else f"{value:.0e}"
