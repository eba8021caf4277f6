"""The fixed-sample test: one test at a planned number of paired seeds."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import bdtrc

from whence.stats.evidence import SEEDS_TO_DECIDE, SIGN_TOLERANCE, Evidence, half_width, verdicts


def decide(advantages: np.ndarray, margins: np.ndarray, alpha: float) -> Evidence:
    """Sign tests of all pairs, corrected by Holm, and t-intervals of the means.

    Under the null hypothesis, a difference is as often positive as negative. The sign test is exact for any
    distribution of the differences. A permutation test of their sizes is not, because it assumes symmetry.
    """
    there, finite = ~np.isnan(advantages), np.isfinite(advantages)
    values = np.where(finite, advantages, 0.0)
    n, scored = there.sum(-1), finite.sum(-1)
    wins, losses = (advantages > SIGN_TOLERANCE).sum(-1), (advantages < -SIGN_TOLERANCE).sum(-1)
    failed = np.isneginf(advantages).sum(-1), np.isposinf(advantages).sum(-1)
    mean = values.sum(-1) / np.maximum(scored, 1)
    half = half_width(scored, mean, (values**2).sum(-1), alpha)
    p = holm(sign_test(wins, losses))
    verdict = verdicts(n, np.sign(wins - losses), p <= alpha, mean, half, margins, failed)
    return Evidence(n, wins, losses, failed[0] + failed[1], mean, half, p, verdict)


def sign_test(wins: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Two-sided p-value of the sign test. Equal scores are left out.

    The test is then of the probability of superiority, with equal scores counted half, against ½.
    """
    more = np.maximum(wins, losses)
    tail = np.where(more > 0, bdtrc(np.maximum(more - 1, 0), np.maximum(wins + losses, 1), 0.5), 1.0)
    return np.minimum(1.0, 2 * tail)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm-adjusted p-values along the last axis, which control the familywise error."""
    order = np.argsort(p, axis=-1, kind="stable")
    count = int(p.shape[-1])
    ranked = np.multiply(np.take_along_axis(p, order, -1), np.arange(count, 0, -1))
    adjusted = np.minimum(np.maximum.accumulate(ranked, axis=-1), 1.0)
    result = np.empty_like(adjusted)
    np.put_along_axis(result, order, adjusted, -1)
    return result


def seeds_needed(comparisons: int, alpha: float) -> int:
    return max(SEEDS_TO_DECIDE, math.ceil(1 + math.log2(max(1, comparisons) / alpha)))
