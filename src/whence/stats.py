"""The only place that turns numbers into words."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal

from scipy import stats

Verdict = Literal["at chance", "learning", "solved"]
SOLVED = 0.99
MASTERED = 0.95
ALPHA = 0.05
SEEDS_TO_DECIDE = 6
"""With fewer paired seeds no two-sided permutation test can reach p < .05."""


def wilson(correct: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Interval for a proportion that stays inside [0, 1] and is honest at the ends."""
    interval = stats.binomtest(correct, total).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def over_seeds(accuracies: Sequence[float], total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Interval for the mean over seeds, each scored on the same `total` answers.

    The wider, on either side, of what one evaluation set allows (Wilson) and of what the seeds show (bootstrap).
    Seeds share the evaluation set, so their answers are not added up as if they were new evidence.
    """
    mean = sum(accuracies) / len(accuracies)
    low, high = wilson(round(mean * total), total, confidence)
    chance = random.Random(0)
    means = sorted(sum(chance.choices(accuracies, k=len(accuracies))) / len(accuracies) for _ in range(2000))
    tail = (1 - confidence) / 2
    return min(low, means[int(tail * 2000)]), max(high, means[int((1 - tail) * 2000) - 1])


def p_above(accuracies: Sequence[float], total: int, floor: float) -> float:
    """Exact probability of a mean this high, or higher, at the floor, on one evaluation set of `total` answers."""
    correct = math.floor(sum(accuracies) / len(accuracies) * total)
    return float(stats.binomtest(correct, total, min(floor, 1.0), alternative="greater").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: the chance of even one false positive in the table stays below alpha."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = running
    return adjusted


def verdict(accuracy: float, adjusted_p: float) -> Verdict:
    """A cell that cannot be told from its floor is at chance, whatever its accuracy."""
    if adjusted_p >= ALPHA:
        return "at chance"
    return "solved" if accuracy >= SOLVED else "learning"


def heading(seeds: int) -> str:
    """What a table of this many paired seeds may claim."""
    noun = "seed" if seeds == 1 else "seeds"
    exploratory = f"exploratory, fewer than {SEEDS_TO_DECIDE}: " if seeds < SEEDS_TO_DECIDE else ""
    return f"{exploratory}{seeds} paired {noun}; differences between encodings are not tested, nothing is ranked"
