"""Contenders against each other while paired seeds are being added, looked at after each of them.

A fixed test repeated after every seed claims something false sooner or later. Evidence here is an e-value: the wealth
of somebody who bets on the signs of a pair's differences and starts with 1. If the signs are fair, it is a martingale
in everything seen so far (pairs share seeds, which does not matter), and so is every average over pairs without a
difference. A pair is decided when all averages that contain it have reached 1 / alpha. A false decision at any look
therefore needs one fixed average, that over all pairs without a difference, to reach 1 / alpha at some time, which by
Ville's inequality has probability alpha at most. For the same reason a decision, once made, may stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import special

from whence.stats.cells import ALPHA, SEEDS_TO_DECIDE
from whence.stats.pairs import SIGN_TOLERANCE, TIE_MARGIN, Comparison, Outcome, half_widths

Key = TypeVar("Key", bound=tuple[str, ...])


def sequential(differences: Mapping[Key, Sequence[float]], alpha: float = ALPHA) -> dict[Key, Comparison]:
    """Verdicts that hold however often one looks: even one false "beats", ever, has probability `alpha` at most.

    A key ends in the names of the two contenders and may begin with the part: ("ood", "rope", "alibi"). All pairs
    asked in a table, of both parts, belong into one call, and which they are must not depend on the scores; those at
    chance are left out of what is shown, not out of the call. The first decision of a pair stays, and `decided_at`
    is its seed; `e` is the highest adjusted value so far. A tie spends alpha over the looks, for each pair.
    """
    if not differences:
        return {}
    length = max(len(values) for values in differences.values())
    table = np.zeros((len(differences), length))  # a seed that a pair lacks bets nothing
    for row, values in zip(table, differences.values(), strict=True):
        row[: len(values)] = values
    if not np.isfinite(table).all():
        raise ValueError("differences must be finite")
    ahead = np.cumsum(table > SIGN_TOLERANCE, axis=1)
    behind = np.cumsum(table < -SIGN_TOLERANCE, axis=1)
    adjusted = averaged(wealth(ahead, behind))
    beaten = adjusted >= (1 - 1e-9) / alpha
    tied = _tied(table, [len(values) for values in differences.values()], alpha)
    found = {}
    for i, (key, values) in enumerate(differences.items()):
        n = len(values)
        decided = np.flatnonzero(beaten[i] | tied[i])
        outcome: Outcome = "exploratory" if n < SEEDS_TO_DECIDE else "undecided"
        at = None
        if len(decided):
            at = int(decided[0])
            winning: Outcome = "a beats b" if ahead[i, at] > behind[i, at] else "b beats a"
            outcome = "tied" if tied[i, at] else winning
        row = table[i, :n]
        mean = float(row.mean()) if n else 0.0
        half = half_widths(row[:, None], 1 - float(spent(np.array(n), alpha)))
        found[key] = Comparison(
            a=key[-2],
            b=key[-1],
            n=n,
            difference=mean,
            interval=None if half is None else (mean - float(half[0]), mean + float(half[0])),
            wins=int((row > SIGN_TOLERANCE).sum()),
            losses=int((row < -SIGN_TOLERANCE).sum()),
            verdict=outcome,
            e=float(adjusted[i].max(initial=0.0)),
            decided_at=None if at is None else at + 1,
        )
    return found


def wealth(ahead: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """e-value of signs against a fair coin: the likelihood averaged over all biases, 2^n / ((n + 1) C(n, h))."""
    n = ahead + behind
    choose = special.gammaln(n + 1) - special.gammaln(ahead + 1) - special.gammaln(behind + 1)
    return np.exp(np.minimum(n * np.log(2.0) - np.log(n + 1) - choose, 600.0))


def averaged(values: np.ndarray) -> np.ndarray:
    """Adjusted e-values, shape (pairs, looks): for each pair the smallest average of any set that contains it."""
    order = np.argsort(values, axis=0)
    ranked = np.take_along_axis(values, order, axis=0)
    smaller = np.zeros(values.shape[1])
    least = ranked.copy()
    for company in range(1, len(values)):  # the best company is the smallest, and never larger than the pair itself
        smaller = smaller + ranked[company - 1]
        least[company:] = np.minimum(least[company:], (ranked[company:] + smaller) / (company + 1))
    result = np.empty_like(values)
    np.put_along_axis(result, order, least, axis=0)
    return result


def spent(n: np.ndarray, alpha: float) -> np.ndarray:
    """The error that a look at n seeds may make; over all looks from the first that may decide it sums to alpha."""
    return np.where(n < SEEDS_TO_DECIDE, alpha, alpha * SEEDS_TO_DECIDE / np.maximum(n * (n + 1), 1))


def _tied(table: np.ndarray, lengths: Sequence[int], alpha: float) -> np.ndarray:
    """Whether the mean of the first n differences lies within the margin, with the interval of that look."""
    n = np.arange(1, table.shape[1] + 1)
    mean = np.cumsum(table, axis=1) / n
    spread = np.maximum(np.cumsum(table**2, axis=1) - n * mean**2, 0) / np.maximum(n - 1, 1)
    half = special.stdtrit(np.maximum(n - 1, 1), 1 - spent(n, alpha) / 2) * np.sqrt(spread / n)
    seen = n <= np.array(lengths)[:, None]
    return (np.abs(mean) + half <= TIE_MARGIN) & seen & (n >= SEEDS_TO_DECIDE)
