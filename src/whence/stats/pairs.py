"""Comparisons of methods over paired seeds.

*Beats* is a claim about a new seed and new data: the winner is more often better than worse (its probability of
superiority, with equal scores counted half, exceeds ½), and better on average. The first part is tested by the signs of
the paired differences, with the error controlled over all comparisons of one call, the family. The second part needs an
interval of the mean difference that excludes 0. Where the two disagree the verdict is *mixed*.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from whence.stats import fixed, sequential
from whence.stats.cells import ALPHA
from whence.stats.evidence import EXPLORATORY, VERDICTS, Outcome
from whence.stats.metric import Metric

TestDesign = Literal["fixed", "sequential"]
"""fixed: one test at a planned number of seeds. sequential: valid after every seed (anytime-valid)."""


@dataclass(frozen=True)
class Pair:
    """Two methods, the metric by which they are compared, and the advantage of the first on every shared seed."""

    a: str
    b: str
    metric: Metric
    advantages: tuple[float, ...]
    """Infinite for seeds on which only one method failed, which counts as a loss of that method."""
    part: str = ""
    """Which scores are compared, such as `id` or `ood`."""
    on: str = ""
    """Data that all seeds share, such as `these held-out recordings`. The claim is then limited to these data."""


def pair(
    metric: Metric,
    a: str,
    b: str,
    scores: Mapping[str, Mapping[int, float]],
    *,
    failed: Mapping[str, Collection[int]] | None = None,
    part: str = "",
    on: str = "",
) -> Pair:
    """The pair of `a` and `b`, from the scores of all methods by seed and the seeds on which a method failed.

    Seeds on which a method neither finished nor failed, or both failed, are left out.
    """
    bad = {name: set((failed or {}).get(name, ())) for name in (a, b)}
    seeds = sorted((set(scores[a]) | bad[a]) & (set(scores[b]) | bad[b]) - (bad[a] & bad[b]))
    advantages = [
        -math.inf if s in bad[a] else math.inf if s in bad[b] else metric.advantage(scores[a][s], scores[b][s])
        for s in seeds
    ]
    return Pair(a, b, metric, tuple(advantages), part, on)


def all_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    return list(itertools.combinations(names, 2))


def against(control: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of every other method with `control`."""
    return [(name, control) for name in names if name != control]


@dataclass(frozen=True, kw_only=True)
class Comparison(Pair):
    """The result of one comparison. `p` or `e` is adjusted for all comparisons of the family."""

    n: int
    """Paired seeds"""
    difference: float
    """Mean advantage of a over b: positive if a is better on average"""
    interval: tuple[float, float] | None
    """95 % interval of the mean difference, for this pair alone; None below three seeds"""
    wins: int
    losses: int
    failures: int
    """Seeds on which one of the two failed, counted as a loss of that one"""
    verdict: Outcome
    family: int
    """Number of comparisons over which the error is controlled"""
    p: float | None = None
    e: float | None = None
    decided_at: int | None = None
    """With a sequential design, the number of seeds since which the verdict has not changed"""

    @property
    def winner(self) -> str | None:
        return {"a beats b": self.a, "b beats a": self.b}.get(self.verdict)

    @property
    def loser(self) -> str | None:
        return {"a beats b": self.b, "b beats a": self.a}.get(self.verdict)

    @property
    def leader(self) -> str | None:
        """The method that is better on more seeds."""
        return None if self.wins == self.losses else self.a if self.wins > self.losses else self.b

    @property
    def decided(self) -> bool:
        return self.verdict in ("a beats b", "b beats a", "mixed", "tied")

    def to_json(self) -> dict[str, Any]:
        numbers = {name: value for name, value in vars(self).items() if name != "advantages"}
        interval = list(self.interval) if self.interval else None
        metric = {"metric": self.metric.name, "unit": self.metric.unit}
        return {**numbers, **metric, "interval": interval, "winner": self.winner}


def compare(pairs: Sequence[Pair], *, design: TestDesign = "fixed", others: int = 0) -> list[Comparison]:
    """Compare all pairs of one family: the probability of any false "beats" among them is at most `ALPHA`.

    The choice of pairs must not depend on their scores; the choice of results to show may.

    Args:
        others: number of further comparisons of the family, whose results were shown before.
    """
    if not pairs:
        return []
    family = len(pairs) + others
    table = np.full((family, max(1, *(len(p.advantages) for p in pairs))), np.nan)
    for row, p in zip(table, pairs, strict=False):
        if any(math.isnan(value) for value in p.advantages):
            raise ValueError(f"{p.metric.name} of {p.a} and {p.b}: expected numbers, got nan")
        row[: len(p.advantages)] = p.advantages
    margins = np.array([p.metric.tie_margin for p in pairs] + [0.0] * others)
    evidence = (fixed if design == "fixed" else sequential).decide(table, margins, ALPHA)
    comparisons: list[Comparison] = []
    for i, p in enumerate(pairs):
        n, reach = int(evidence.n[i]), p.metric.largest_difference
        mean, half = float(evidence.mean[i]), float(evidence.half[i])
        interval = max(mean - half, -reach), min(mean + half, reach)
        value = float(evidence.value[i])
        comparisons.append(
            Comparison(
                **vars(p),
                n=n,
                difference=mean,
                interval=interval if math.isfinite(half) and n >= EXPLORATORY else None,
                wins=int(evidence.wins[i]),
                losses=int(evidence.losses[i]),
                failures=int(evidence.failures[i]),
                verdict=VERDICTS[int(evidence.verdict[i])],
                family=family,
                p=value if design == "fixed" else None,
                e=value if design == "sequential" else None,
                decided_at=int(evidence.since[i]) if evidence.since is not None and evidence.since[i] else None,
            )
        )
    return comparisons


def seeds_needed(comparisons: int = 1, *, design: TestDesign = "fixed") -> int:
    """Smallest number of paired seeds with which a method that is better on all of them can win in such a family."""
    return (fixed if design == "fixed" else sequential).seeds_needed(comparisons, ALPHA)
