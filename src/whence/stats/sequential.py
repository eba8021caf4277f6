"""The sequential test: valid after every added seed, however often the result is read (anytime-valid).

A fixed test that is repeated after every seed eventually finds a false winner. This test uses e-values: the wealth of a
bettor who starts with 1 and bets on the signs of a pair's differences. Under the null hypothesis it is a martingale
given everything observed so far (pairs share seeds, which does not matter), and so is every average over true null
hypotheses. A pair is superior once all averages that contain it have reached 1 / alpha. A false one, at any time, needs
one fixed average, that over all true nulls, to reach 1 / alpha, which by Ville's inequality has probability alpha at
most. Intervals of the mean spend alpha over the numbers of seeds at which they are read.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from whence.stats.evidence import SEEDS_TO_DECIDE, SIGN_TOLERANCE, VERDICTS, Evidence, half_width, verdicts


def decide(advantages: np.ndarray, margins: np.ndarray, alpha: float) -> Evidence:
    finite = np.isfinite(advantages)
    values = np.where(finite, advantages, 0.0)
    n, scored, total, squares = (np.cumsum(x, axis=-1) for x in (~np.isnan(advantages), finite, values, values**2))
    wins, losses = np.cumsum(advantages > SIGN_TOLERANCE, axis=-1), np.cumsum(advantages < -SIGN_TOLERANCE, axis=-1)
    failed = np.cumsum(np.isneginf(advantages), axis=-1), np.cumsum(np.isposinf(advantages), axis=-1)
    lead = np.sign(wins - losses)
    adjusted = averaged(wealth(wins, losses))
    crossed = adjusted >= (1 - 1e-9) / alpha
    # Evidence that was once reached remains valid for its side. A later change of sides is no new evidence.
    sides = [np.logical_or.accumulate(crossed & (lead == side), axis=-1) & (lead == side) for side in (1, -1)]
    superior = sides[0] | sides[1]
    mean = total / np.maximum(scored, 1)
    half = half_width(scored, mean, squares, spent(n, alpha))
    verdict = verdicts(n, lead, superior, mean, half, np.asarray(margins)[:, None], failed)
    value = np.where(lead == lead[..., -1:], adjusted, 0.0).max(-1)  # of the side that leads now
    last = {"n": n, "wins": wins, "losses": losses, "failures": failed[0] + failed[1], "mean": mean, "half": half}
    since = _since(verdict, n)
    return Evidence(
        **{name: x[..., -1] for name, x in last.items()}, value=value, verdict=verdict[..., -1], since=since
    )


def _since(verdict: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Number of seeds since which the verdict has not changed; 0 where nothing is decided."""
    same = np.logical_and.accumulate((verdict == verdict[..., -1:])[..., ::-1], axis=-1)[..., ::-1]
    first = np.take_along_axis(n, same.argmax(-1)[..., None], -1)[..., 0]
    return np.where(verdict[..., -1] >= VERDICTS.index("tied"), first, 0)


def wealth(ahead: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """e-value of signs against a fair coin: the likelihood averaged over all biases, 2^n / ((n + 1) C(n, h))."""
    n = ahead + behind
    choose = gammaln(n + 1) - gammaln(ahead + 1) - gammaln(behind + 1)
    return np.exp(np.minimum(n * np.log(2.0) - np.log(n + 1) - choose, 600.0))


def averaged(values: np.ndarray) -> np.ndarray:
    """Adjusted e-values, shape (…, pairs, seeds): for each pair the smallest average of any set that contains it."""
    order = np.argsort(values, axis=-2)
    ranked = np.take_along_axis(values, order, axis=-2)
    below = np.cumsum(ranked, axis=-2)
    least = ranked.copy()
    for size in range(1, values.shape[-2]):  # the smallest average is with the smallest values
        average = (ranked[..., size:, :] + below[..., size - 1 : size, :]) / (size + 1)
        least[..., size:, :] = np.minimum(least[..., size:, :], average)
    result = np.empty_like(values)
    np.put_along_axis(result, order, least, axis=-2)
    return result


def spent(n: np.ndarray, alpha: float) -> np.ndarray:
    """The error spent on the interval at n seeds. From the first number that can decide on, it sums to alpha."""
    return np.where(n < SEEDS_TO_DECIDE, alpha, alpha * SEEDS_TO_DECIDE / np.maximum(n * (n + 1), 1))


def seeds_needed(comparisons: int, alpha: float) -> int:
    counts = np.arange(1, 200)
    enough = wealth(counts, 0 * counts) >= max(1, comparisons) / alpha
    return max(SEEDS_TO_DECIDE, int(counts[enough.argmax()]))
