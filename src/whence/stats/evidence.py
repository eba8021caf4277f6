"""What fixed and sequential tests have in common: the evidence of many pairs at once, and the rule for a verdict.

Arrays have the shape (…, pairs), from advantages of shape (…, pairs, seeds). A seed that a pair lacks is `nan`. One on
which only one of the two methods failed is infinite: it counts as a loss of that method and enters no mean. Leading
axes are independent tables, so that a simulation and a single table go through the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import stdtrit

SIGN_TOLERANCE = 1e-12
"""Differences up to this size are rounding errors: the two scores are equal."""
SEEDS_TO_DECIDE = 6
"""With fewer paired seeds, no two-sided sign test can reach p < .05."""
EXPLORATORY = 3
"""With fewer paired seeds, no interval of the mean is reported."""
Outcome = Literal["exploratory", "undecided", "tied", "mixed", "a beats b", "b beats a"]
VERDICTS: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True)
class Evidence:
    """Evidence on every pair."""

    n: np.ndarray
    """Paired seeds, those with a failure included"""
    wins: np.ndarray
    losses: np.ndarray
    failures: np.ndarray
    """Seeds on which one of the two failed"""
    mean: np.ndarray
    half: np.ndarray
    """Half the width of the interval of the mean difference"""
    value: np.ndarray
    """p or e, adjusted for the family"""
    verdict: np.ndarray
    """Indices into `VERDICTS`"""
    since: np.ndarray | None = None
    """Number of seeds since which the verdict has not changed; 0 where nothing is decided"""


def half_width(n: np.ndarray, mean: np.ndarray, squares: np.ndarray, error: np.ndarray | float) -> np.ndarray:
    """Half width of the t-interval of a mean, from the number, the mean and the sum of squares; infinite for one value.

    Equal values give a width of 0: rounding errors of the sums are removed.
    """
    degrees = np.maximum(n - 1, 1)
    spread = np.maximum(squares - n * mean**2, 0) / degrees
    spread = np.where(spread <= 1e-12 * np.maximum(squares / np.maximum(n, 1), 1e-300), 0.0, spread)
    half = stdtrit(degrees, 1 - np.asarray(error) / 2) * np.sqrt(spread / np.maximum(n, 1))
    return np.where(n < 2, np.inf, half)


def verdicts(
    n: np.ndarray,
    lead: np.ndarray,
    superior: np.ndarray,
    mean: np.ndarray,
    half: np.ndarray,
    margins: np.ndarray,
    failed: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """The decision rule.

    A pair is tied if the interval of its mean difference lies within the tie margin and neither method failed alone. A
    winner needs a significant sign test and a better mean, and must not have failed on a seed that the other finished.

    Args:
        lead: sign of (wins − losses).
        superior: whether the sign test rejects, with the error controlled over the family.
        failed: number of seeds on which only the first, and only the second method failed.
    """
    tied = (np.abs(mean) + half <= margins) & (failed[0] + failed[1] == 0)
    ahead = np.where(np.abs(mean) > half, np.sign(mean), 0)
    leader_failed = np.where(lead > 0, failed[0], failed[1]) > 0
    winner = superior & (ahead == lead) & ~leader_failed
    verdict = np.full(n.shape, VERDICTS.index("undecided"))
    contradicted = (np.sign(mean) != lead) & np.isfinite(half)  # a single seed does not contradict the signs
    verdict[superior & (contradicted | leader_failed)] = VERDICTS.index("mixed")
    verdict[winner & (lead > 0)] = VERDICTS.index("a beats b")
    verdict[winner & (lead < 0)] = VERDICTS.index("b beats a")
    verdict[tied] = VERDICTS.index("tied")
    verdict[n < SEEDS_TO_DECIDE] = VERDICTS.index("exploratory")
    return verdict
