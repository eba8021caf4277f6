"""Contenders against each other, at a number of paired seeds fixed beforehand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import special

from whence.stats import swaps
from whence.stats.cells import ALPHA, SEEDS_TO_DECIDE, holm

Outcome = Literal["a beats b", "b beats a", "tied", "undecided", "exploratory"]
TIE_MARGIN = 0.02
SIGN_TOLERANCE = 1e-12
MOST_CLOSED = 6
"""Contenders up to which all partitions are tested: 203 for six, 877 for seven."""
WITHIN, BEYOND = 0.032, 0.018


@dataclass(frozen=True)
class Comparison:
    """Two contenders over n paired seeds. `p` or `e` is adjusted for all comparisons of the same table."""

    a: str
    b: str
    n: int
    difference: float
    """mean of a − b"""
    interval: tuple[float, float] | None
    """t-interval of the mean difference for this pair alone; none from a single seed"""
    wins: int
    losses: int
    verdict: Outcome
    p: float | None = None
    e: float | None = None
    decided_at: int | None = None
    """the look, in seeds, at which a table with growing seeds decided"""

    @property
    def winner(self) -> str | None:
        return {"a beats b": self.a, "b beats a": self.b}.get(self.verdict)

    @property
    def loser(self) -> str | None:
        return {"a beats b": self.b, "b beats a": self.a}.get(self.verdict)

    @property
    def decided(self) -> bool:
        return self.winner is not None or self.verdict == "tied"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "winner": self.winner}


def compare(
    scores: Mapping[str, Sequence[float]], alpha: float = ALPHA, *, stop_above: float = 1.0
) -> dict[tuple[str, str], Comparison]:
    """All pairs of contenders: the chance of even one false "beats" among them is at most `alpha`.

    Exact permutations within seeds, closed over all partitions of the contenders (see `swaps`); so a clear winner
    among up to six needs no more seeds than a lone pair. Beyond six contenders the exact p-values of the pairs are
    adjusted by Holm, which costs seeds: `seeds_needed` tells how many.

    What is refuted is that two contenders are interchangeable. With equal means but different shapes (one steady, one
    that seldom solves) "beats" speaks of the usual seed, not of the mean over many. *Tied* is judged per pair, by the
    95 % t-interval, and knows only such seeds as were seen. With `stop_above`, a p above it may be given too low.
    """
    names, table = list(scores), _table(scores)
    n = len(table)
    if len(names) <= MOST_CLOSED:
        adjusted = swaps.closed(table, stop_above)
    else:
        alone = swaps.alone(table)
        adjusted = dict(zip(alone, holm(list(alone.values())), strict=True))
    if not adjusted:
        return {}
    first, second = zip(*adjusted, strict=True)
    differences = table[:, first] - table[:, second]
    means, halves = differences.mean(axis=0), half_widths(differences, 1 - ALPHA)
    wins, losses = (differences > SIGN_TOLERANCE).sum(axis=0), (differences < -SIGN_TOLERANCE).sum(axis=0)
    found = {}
    for i, ((a, b), p) in enumerate(adjusted.items()):
        mean = float(means[i])
        interval = None if halves is None else (mean - float(halves[i]), mean + float(halves[i]))
        outcome: Outcome = "undecided"
        if n < SEEDS_TO_DECIDE:
            outcome = "exploratory"
        elif interval and interval[0] >= -TIE_MARGIN and interval[1] <= TIE_MARGIN:
            outcome = "tied"  # whatever p says: a difference that is sure and does not matter makes no winner
        elif p <= alpha:
            outcome = "a beats b" if mean > 0 else "b beats a"
        pair = names[a], names[b]
        found[pair] = Comparison(*pair, n, mean, interval, int(wins[i]), int(losses[i]), outcome, p=p)
    return found


def _table(scores: Mapping[str, Sequence[float]]) -> np.ndarray:
    lengths = {name: len(values) for name, values in scores.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"paired seeds must be equally many, and at least one: {lengths}")
    seeds = next(iter(lengths.values()), 0)
    table = np.array(list(scores.values()), dtype=float).reshape(len(scores), seeds).T
    if not np.isfinite(table).all():
        raise ValueError("scores must be finite")
    return table


def half_widths(differences: np.ndarray, confidence: float) -> np.ndarray | None:
    """Half the t-interval of the mean of each column; none from a single seed. Equal differences make a point."""
    n = len(differences)
    if n < 2:
        return None
    return special.stdtrit(n - 1, (1 + confidence) / 2) * differences.std(axis=0, ddof=1) / math.sqrt(n)


def mean_interval(values: Sequence[float], confidence: float = 1 - ALPHA) -> tuple[float, float] | None:
    """Of the mean over seeds; none from a single one."""
    column = np.array(values, dtype=float)[:, None]
    half = half_widths(column, confidence)
    return None if half is None else (float(column.mean() - half[0]), float(column.mean() + half[0]))


def together(pairs: Sequence[Comparison]) -> list[Comparison]:
    """Pairs that were compared one by one, judged as one family (Holm)."""
    adjusted = holm([pair.p if pair.p is not None else 1.0 for pair in pairs])
    return [
        replace(pair, p=p, verdict="undecided" if pair.winner and p > ALPHA else pair.verdict)
        for pair, p in zip(pairs, adjusted, strict=True)
    ]


def share_alpha(parts: Mapping[str, int]) -> dict[str, float]:
    """The error that each part of a table may make, from the number of comparisons that each holds.

    Unequal, because p-values come in steps: like this six seeds suffice within training and seven beyond, while
    two halves would ask for seven in both.
    """
    held = [part for part, comparisons in parts.items() if comparisons]
    if unknown := set(held) - {"id", "ood"}:
        raise ValueError(f"parts are id and ood, not {sorted(unknown)}")
    return {"id": WITHIN, "ood": BEYOND} if len(held) == 2 else dict.fromkeys(held, ALPHA)


def seeds_needed(alpha: float = ALPHA, contenders: int = 2) -> int:
    """The fewest paired seeds with which a clear winner can be told: all of them agree, in either direction."""
    tests = 1 if contenders <= MOST_CLOSED else math.comb(contenders, 2)
    return max(SEEDS_TO_DECIDE, math.ceil(1 + math.log2(tests / alpha)))
