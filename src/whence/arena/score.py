"""One cell: an encoding's accuracy over seeds, beside what needs no skill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whence import stats
from whence.arena.run import Run

Part = str
"""`id` within training, `ood` beyond it."""
PARTS: tuple[Part, ...] = ("id", "ood")


@dataclass(frozen=True)
class Member:
    """One finished run of a row."""

    run: Run
    status: dict[str, Any]
    evaluations: list[dict[str, Any]]

    @property
    def metrics(self) -> dict[str, Any]:
        return self.status["latest"]


@dataclass(frozen=True)
class Score:
    """Over seeds: the accuracy of each, the floors, and the verdict once the table is known."""

    per_seed: tuple[float, ...]
    effective: float
    """Independent answers that all seeds are worth together: answers within a sequence depend on each other."""
    floors: Mapping[str, float]
    loss: float
    seen: float = 0.0
    """Share of the test sequences that also occur in training."""
    exact: tuple[float, ...] = ()
    """Share of sequences answered without any mistake, per seed; empty where a sequence has one answer."""
    verdict: stats.Verdict = "at chance"
    baseline_limit: float | None = None
    """Upper 95 % limit of the baseline, which is an estimate itself; None: it is exact."""

    @property
    def accuracy(self) -> float:
        return stats.mean(self.per_seed)

    @property
    def exact_share(self) -> float | None:
        return stats.mean(self.exact) if self.exact else None

    @property
    def solved(self) -> int:
        """By how many seeds."""
        return sum(accuracy >= stats.SOLVED for accuracy in self.per_seed)

    @property
    def floor(self) -> float:
        return max(self.floors.values())

    @property
    def floor_name(self) -> str:
        return max(self.floors, key=lambda name: self.floors[name])

    @property
    def interval(self) -> tuple[float, float]:
        return stats.over_seeds(self.per_seed, self.effective)

    @property
    def percents(self) -> tuple[str, str]:
        """The mean and its interval, as text."""
        low, high = self.interval
        return f"{100 * self.accuracy:.1f}", f"[{100 * low:.1f}, {100 * high:.1f}]"

    @property
    def p_value(self) -> float:
        """Of an accuracy this high if every seed were at the upper limit of the baseline."""
        return stats.p_above(self.per_seed, self.effective, self.baseline_limit or self.floor)

    def to_json(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "per_seed": list(self.per_seed),
            "best": max(self.per_seed),
            "solve_rate": stats.solve_rate(self.per_seed),
            "exact": self.exact_share,
            "loss": self.loss,
            "seen_in_training": self.seen,
            "floor": self.floor,
            "floor_name": self.floor_name,
            "floors": dict(self.floors),
            "verdict": self.verdict,
        }


def score_of(members: Sequence[Member], part: Part) -> Score | None:
    parts = [member.metrics[part] for member in members if part in member.metrics]
    if not parts:
        return None
    run = members[0].run
    lengths = (run.train_length,) if part == "id" else run.test_lengths
    several = any(p["total"] > p["sequences"] for p in parts)
    totals = {n: members[0].metrics["lengths"][str(n)]["total"] for n in lengths}
    limit = sum(run.baseline_limit(n) * total for n, total in totals.items()) / sum(totals.values())
    return Score(
        per_seed=tuple(p["correct"] / p["total"] for p in parts),
        effective=sum(_effective([m.metrics["lengths"][str(n)] for n in lengths]) for m in members),
        floors=_pooled_floors(run, totals),
        loss=stats.mean([p["loss"] for p in parts]),
        seen=sum(p.get("seen_in_training", 0) for p in parts) / sum(p["sequences"] for p in parts),
        exact=tuple(p["exact"] / p["sequences"] for p in parts) if several else (),
        baseline_limit=limit,
    )


def _effective(sets: Sequence[Mapping[str, Any]]) -> float:
    """Independent answers that the evaluation sets of one run are worth together."""
    names = ("correct", "total", "sequences", "squares")
    return stats.pooled((counts["total"], stats.effective(**{name: counts[name] for name in names})) for counts in sets)


def _pooled_floors(run: Run, totals: Mapping[int, int]) -> dict[str, float]:
    """Accuracy of every shortcut on the same answers, and of the best one at each length."""
    floors = {length: run.floors(length) for length in totals}
    whole = sum(totals.values())
    common = set.intersection(*(set(by_name) for by_name in floors.values()))
    best = {n: max(by_name, key=by_name.__getitem__) for n, by_name in floors.items()}
    choices = {name: dict.fromkeys(totals, name) for name in next(iter(floors.values())) if name in common}
    choices[" / ".join(dict.fromkeys(best.values()))] = best
    return {name: sum(floors[n][of[n]] * totals[n] for n in totals) / whole for name, of in choices.items()}
