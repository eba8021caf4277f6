"""Cures side by side: what each does to the leak, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whence import stats
from whence.leak import RATIOS
from whence.leak.run import Run
from whence.leak.spec import COMPARED
from whence.leak.verdict import DEAD, LEAKS, Leak, judged, leaks
from whence.leak.words import number, percent, share
from whence.runs.looks import NEVER, Earlier, consult
from whence.runs.outcomes import results_of
from whence.runs.store import Store

SHOWN = tuple(f"{ratio:g}" for ratio in RATIOS)
COLUMNS = [
    "cure",
    "verdict",
    *("moved 50 %", "90 %"),
    *(f"error {percent(ratio)}" for ratio in SHOWN),
    *("all hidden: |r|", "chance", "similarity", "variance", "R²"),
]
LEGEND = "error, variance: over the targets' variance · moved: share of predictions' variance that moving changes"
SHRUNK = 0.5
"""A cure shrinks a leak if it leaves less than this share of it."""
READ_OFF = 0.5
"""A probe's R² from which on position can be read off."""


@dataclass(frozen=True)
class Row:
    """One cure over all seeds. Failed, damaged and unfinished runs are named, and enter no average."""

    cure: str
    runs: tuple[str, ...]
    metrics: Mapping[int, dict[str, Any]]
    """By seed, by ratio"""
    failed: Mapping[str, str]
    diverged: frozenset[int] = frozenset()
    """Seeds on which it failed by its own numbers"""
    ended: frozenset[str] = frozenset()
    """Runs that finished or diverged"""

    def values(self, ratio: str, *path: str) -> list[float] | None:
        """One number per seed; None where it is undefined in any, as correlations of equal predictions are."""
        found = [at(metrics[ratio], path) for metrics in self.metrics.values()]
        return None if not found or any(value is None for value in found) else [float(value) for value in found]

    def mean(self, ratio: str, *path: str) -> float | None:
        values = self.values(ratio, *path)
        return None if values is None else stats.mean(values)

    def inside(self, ratio: str, *path: str) -> float:
        """The mean of what a verdict goes by: without what a prior adds in the open."""
        return stats.mean([at(judged(metrics[ratio]), path) for metrics in self.metrics.values()])

    @property
    def openly(self) -> bool:
        return any(found.get("inside") for metrics in self.metrics.values() for found in metrics.values())

    @property
    def dead(self) -> bool:
        return min(self.mean(ratio, "error") or 0.0 for ratio in SHOWN) >= DEAD

    @property
    def worst(self) -> Leak:
        return max(self.outcomes, key=LEAKS.index)

    @property
    def outcomes(self) -> list[Leak]:
        """Per seed."""
        return [leaks(metrics) for metrics in self.metrics.values()]

    @property
    def notes(self) -> list[str]:
        """The verdict, word by word."""
        if not self.metrics:
            return ["failed" if self.failed else "not run"]
        disagree = len(set(self.outcomes)) > 1
        marks = {"seeds disagree": disagree, "prior in the open": self.openly, "dead": self.dead}
        return [self.worst, *(mark for mark, holds in marks.items() if holds)]

    @property
    def verdict(self) -> str:
        return ", ".join(self.notes)

    def cells(self) -> list[str]:
        """A line of the table: verdict, errors, what there is with everything hidden, what moving changes."""
        if not self.metrics:
            return [self.cure, self.verdict, *[""] * (len(SHOWN) + 7)]
        hidden = [("correlation",), ("correlation_chance",), ("similarity",), ("spread",), ("probe", "best")]
        return [
            self.cure,
            self.verdict,
            *(number(self.mean(ratio, "shift", "of_prediction")) for ratio in ("0.5", "0.9")),
            *(number(self.mean(ratio, "error")) for ratio in SHOWN),
            *(number(self.mean("1", *path)) for path in hidden),
        ]

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
    on: str = ""
    """Held-out data that all seeds share."""
    earlier: Earlier = NEVER
    """What was shown of the same mitigations before."""

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
        """What every cure does to the error, against the first, at the ratios that reconstruction is judged by."""
        if self.design is None:
            return []
        pairs = [
            stats.pair(
                stats.NORMALIZED_ERROR,
                a,
                b,
                {row.cure: {seed: m[ratio]["error"] for seed, m in row.metrics.items()} for row in self.rows},
                failed={row.cure: row.diverged for row in self.rows},
                part=f"at mask ratio {ratio}",
                on=self.on,
            )
            for ratio in COMPARED
            for a, b in stats.against(self.rows[0].cure, [row.cure for row in self.rows])
        ]
        return [c for c in stats.compare(pairs, design=self.design, others=self.earlier.comparisons) if c.n]

    @property
    def seeds(self) -> int:
        return min((len(row.metrics) for row in self.rows), default=0)

    def cost(self, row: Row, ratio: str) -> tuple[float, tuple[float, float] | None] | None:
        """By which factor the error changes, and its 95 % interval over paired seeds."""
        reference = self.rows[0]
        shared = sorted(set(row.metrics) & set(reference.metrics))
        if not shared:
            return None
        logs = [math.log(row.metrics[s][ratio]["error"] / reference.metrics[s][ratio]["error"]) for s in shared]
        between = stats.mean_interval(logs)
        return math.exp(stats.mean(logs)), None if between is None else (math.exp(between[0]), math.exp(between[1]))

    @property
    def findings(self) -> list[str]:
        reference = self.rows[0]
        lines = [f"{row.cure}: {self.effect(row)}." for row in self.rows if row.metrics]
        failed = [f"{row.cure} ({len(row.failed)})" for row in self.rows if row.failed]
        lines += [f"Failed or damaged runs, in no average: {', '.join(failed)}."] if failed else []
        if not reference.metrics:
            lines.append(f"No run of {reference.cure} has finished, so that costs are held against nothing.")
        elif len(self.rows) > 1:
            held = "factors of the error, with 95 % intervals over seeds"
            lines.append(f"Costs are held against {reference.cure}: {held}.")
        return lines + stats.report(
            self.comparisons,
            design=self.design,
            earlier=self.earlier.seeds,
            untested=self.earlier.why_not("fixed", complete=self.complete),
        )

    def effect(self, row: Row) -> str:
        """In words: what became of the leak, then what it costs; what it is by itself, without a reference."""
        reference = self.rows[0] if self.rows[0].metrics else row
        words = [self._leak(row, reference)]
        if row.dead and (row is reference or reference.dead):
            words.append("the model reconstructs nothing")
        elif row.dead:
            words.append("the model is destroyed: it reconstructs nothing")
        elif row is not reference:
            words.append(
                "error " + ", ".join(f"{_factor(self.cost(row, ratio))} at {ratio}" for ratio in ("0.5", "0.9"))
            )
        return "; ".join(words)

    def _leak(self, row: Row, reference: Row) -> str:
        moved = max(row.inside(ratio, "shift", "of_prediction") for ratio in SHOWN if ratio != "1")
        changes = f"changes {share(moved)} of the predictions' variance"
        spread = row.inside("1", "spread")
        if row.worst == "clean":
            openly = "what position predicts is in the prior, in the open; " if row.openly else ""
            does = "removes it" if row is not reference and reference.worst != "clean" else "does not leak"
            return f"{openly}{does}: predictions do not depend on where tokens are"
        if row is reference:
            apart = f"with everything hidden, predictions differ by {share(spread)} of the targets' variance"
            return f"{apart}; moving everything {changes}"
        left = f"moving everything still {changes}"
        if row.worst == "undecided":
            limit = max(row.inside(ratio, "shift", "limit") for ratio in SHOWN if ratio != "1")
            return f"nothing is decided: noise hides changes below {share(limit)} of the predictions' variance"
        if row.worst == "traces":
            return f"leaves traces; {left}"
        before = reference.inside("1", "spread")
        if _linear(reference) and not _linear(row) and (spread >= SHRUNK * before or _read_off(row) >= READ_OFF):
            straight = f"|r| {reference.mean('1', 'correlation'):.2f} to {row.mean('1', 'correlation'):.2f}"
            return f"hides its linear part only ({straight}; read off by shape with R² {_read_off(row):.2f}); {left}"
        if spread < SHRUNK * before:
            shrunk = f"to {share(spread)} from {share(before)} of the targets' variance"
            return f"shrinks it ({shrunk}) without removing it; {left}"
        return f"does not stop it; {left}"

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "seeds": self.seeds,
            "findings": self.findings,
            "comparisons": [c.to_json() for c in self.comparisons],
            "rows": [
                {**row.to_json(), "cost": {ratio: self.cost(row, ratio) for ratio in SHOWN} if row.metrics else {}}
                for row in self.rows
            ],
        }


def tabulate(runs: Sequence[Run], store: Store, ends: Mapping[str, str]) -> Table:
    """`ends`: how the processes of this sweep ended."""
    cures: dict[str, list[Run]] = {}
    for run in runs:
        cures.setdefault(run.cure, []).append(run)
    first = runs[0]
    rows = tuple(_row(cure, members, store, ends) for cure, members in cures.items())
    compared = [(a, b, ratio) for ratio in COMPARED for a, b in stats.against(first.cure, cures)]
    pairs = [(cures[a][0], cures[b][0], ratio) for a, b, ratio in compared]
    earlier = consult(runs, frozenset().union(*(row.ended for row in rows)), pairs, store)
    return Table(f"{first.data} · {first.model.backbone}", rows, first.data.build().held_out_name, earlier)


def _row(cure: str, runs: Sequence[Run], store: Store, ends: Mapping[str, str]) -> Row:
    results = results_of(store, runs, ends)
    metrics = {seed: metrics["ratios"] for seed, metrics in results.metrics.items()}
    return Row(cure, tuple(run.id for run in runs), metrics, results.failed, results.diverged, results.ended)


def at(found: Any, path: Sequence[str]) -> Any:
    """A number in nested measures; None where any part of the way is undefined."""
    for name in path:
        found = None if found is None else found[name]
    return found


def _linear(row: Row) -> bool:
    """With everything hidden, do predictions correlate with position beyond chance?"""
    told, chance = row.mean("1", "correlation"), row.mean("1", "correlation_chance")
    return told is not None and chance is not None and told > chance


def _read_off(row: Row) -> float:
    """With everything hidden, how well a probe reads position off."""
    return row.mean("1", "probe", "best") or 0.0


def _factor(cost: tuple[float, tuple[float, float] | None] | None) -> str:
    if cost is None:
        return "unknown"
    mean, between = cost
    return f"×{mean:.3f}" + (f" [{between[0]:.3f}, {between[1]:.3f}]" if between else "")
