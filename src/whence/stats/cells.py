"""One score: its effective sample size, its interval, its test against the shortcut baseline, its verdict."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from scipy.special import betainc, ndtri, stdtrit

from whence.stats import fixed
from whence.stats.evidence import half_width

Verdict = Literal["at chance", "learning", "solved"]
SOLVED = 0.99
MASTERED = 0.95
ALPHA = 0.05
CONFIDENCE = 0.95
MANY_SEQUENCES = 30


def design_effect(*, correct: int, total: int, sequences: int, squares: int) -> float:
    """Design effect of answers that are clustered in sequences: 1 if they are independent.

    The variance of the number of correct answers per sequence, divided by its variance for independent answers.
    Sequences must have equally many answers; pool lengths with `pooled`, because different lengths in one count would
    be mistaken for dependence.

    Args:
        squares: sum over sequences of the squared number of correct answers.
    """
    if not (0 < sequences <= total and 0 <= correct <= total and correct <= squares <= correct**2):
        raise ValueError(f"expected consistent counts, got {correct=} {total=} {sequences=} {squares=}")
    if total == sequences:
        return 1.0
    if sequences == 1:
        return float(total)
    whole = (total - 1) / (sequences - 1)  # the value if all answers of a sequence are equal
    if correct in (0, total):
        # The dependence cannot be estimated. With many sequences all answers count. With few, a predictor at the
        # baseline could be right on all of them by chance, so that only the sequences count.
        return 1.0 if sequences >= MANY_SEQUENCES else whole
    accuracy = correct / total
    observed = (squares - correct**2 / sequences) / (sequences - 1)
    independent = total / sequences * accuracy * (1 - accuracy) * total / (total - 1)
    return min(max(1.0, observed / independent), whole)


def effective(*, correct: int, total: int, sequences: int, squares: int) -> float:
    """Effective number of independent answers among `total` answers in `sequences` sequences.

    The design effect is estimated from `sequences` values. The ratio of squared t quantiles accounts for its error.
    """
    inflation = design_effect(correct=correct, total=total, sequences=sequences, squares=squares)
    if inflation == 1.0 or sequences == 1:
        return total / inflation
    estimated = stdtrit(total - 1, 0.975) / stdtrit(sequences - 1, 0.975)
    return max(1.0, total / inflation * float(estimated) ** 2)


def pooled(parts: Iterable[tuple[int, float]]) -> float:
    """Effective number of answers of several evaluations, given as (answers, effective answers) of each."""
    known = list(parts)
    total = sum(answers for answers, _ in known)
    return total**2 / sum(answers**2 / worth for answers, worth in known)


def wilson(correct: float, total: float) -> tuple[float, float]:
    """95 % Wilson interval of a proportion.

    With an effective number of answers as `total`, `correct` is the accuracy times that number.
    """
    z = float(ndtri((1 + CONFIDENCE) / 2))
    share = correct / total
    centre = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total**2))
    scale = 1 + z * z / total
    low, high = (centre - half) / scale, (centre + half) / scale
    return (0.0 if share == 0 else max(0.0, low)), (1.0 if share == 1 else min(1.0, high))


def over_seeds(accuracies: Sequence[float], total: float) -> tuple[float, float]:
    """Interval of the mean over seeds that were scored on `total` (effective) answers together.

    On either side the wider of the Wilson interval of the answers and the bootstrap interval over seeds.
    """
    mean = math.fsum(accuracies) / len(accuracies)
    low, high = wilson(mean * total, total)
    chance = random.Random(0)
    means = sorted(sum(chance.choices(accuracies, k=len(accuracies))) / len(accuracies) for _ in range(2000))
    tail = (1 - CONFIDENCE) / 2
    return min(low, means[int(tail * 2000)]), max(high, means[int((1 - tail) * 2000) - 1])


def p_above(accuracies: Sequence[float], total: float, baseline: float) -> float:
    """Exact binomial probability of a mean this high or higher if every seed were at the baseline.

    The seeds have `total` (effective) answers together. The numbers of answers and of correct answers are rounded
    down, which is conservative.
    """
    answers = max(1, math.floor(total))
    correct = math.floor(math.fsum(accuracies) / len(accuracies) * answers + 1e-9)
    if correct <= 0 or baseline >= 1:
        return 1.0
    return float(betainc(correct, answers - correct + 1, max(baseline, 0.0)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: the probability of even one false positive among them stays below alpha."""
    return [float(p) for p in fixed.holm(np.array(p_values, dtype=float))] if p_values else []


def verdict(accuracy: float, adjusted_p: float) -> Verdict:
    """The verdict on one cell. A cell that is not above its shortcut baseline is at chance, whatever its accuracy."""
    if adjusted_p >= ALPHA:
        return "at chance"
    return "solved" if accuracy >= SOLVED else "learning"


def rankable(verdicts: Mapping[str, str]) -> list[str]:
    """Names of the cells that are compared. Cells at chance, not learned, failed or not run are not ranked."""
    return [name for name, verdict in verdicts.items() if verdict in ("learning", "solved")]


def normalised(accuracy: float, baseline: float) -> float:
    """(accuracy − baseline) / (1 − baseline), so that scores of different tasks can be averaged."""
    if not 0 <= baseline < 1:
        raise ValueError(f"expected a baseline in [0, 1), got {baseline}")
    return (accuracy - baseline) / (1 - baseline)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % t-interval of the mean over seeds; None for a single seed."""
    column = np.array(values, dtype=float)
    if len(column) < 2:
        return None
    half = float(half_width(np.array(len(column)), column.mean(), (column**2).sum(), 1 - CONFIDENCE))
    return float(column.mean()) - half, float(column.mean()) + half


def iqm(values: Sequence[float]) -> float:
    """Interquartile mean. A value at a quartile counts with the fraction inside."""
    if not values:
        raise ValueError("expected at least one value, got none")
    n = len(values)
    weights = [max(0.0, min(i + 1, 0.75 * n) - max(i, 0.25 * n)) for i in range(n)]
    return math.fsum(weight * value for weight, value in zip(weights, sorted(values), strict=True)) / (n / 2)


def solve_rate(accuracies: Sequence[float]) -> float:
    """Fraction of seeds with an accuracy of at least 99 %."""
    return sum(accuracy >= SOLVED for accuracy in accuracies) / len(accuracies)
