"""The only place that turns numbers into words.

cells        one score: its interval, its test against the floor, its verdict
swaps        exact within-seed permutation tests, closed over all ways in which contenders may be alike
pairs        contenders against each other at a number of seeds fixed beforehand
anytime      the same while seeds are still being added, looked at after each
words        what may be said about all that
"""

from whence.stats.anytime import sequential
from whence.stats.cells import (
    ALPHA,
    MASTERED,
    SEEDS_TO_DECIDE,
    SOLVED,
    Verdict,
    design_effect,
    effective,
    holm,
    iqm,
    mean,
    normalised,
    over_seeds,
    p_above,
    pooled,
    rankable,
    solve_rate,
    verdict,
    wilson,
)
from whence.stats.pairs import (
    TIE_MARGIN,
    Comparison,
    Outcome,
    compare,
    mean_interval,
    seeds_needed,
    share_alpha,
    together,
)
from whence.stats.words import heading, sentence

__all__ = [
    "ALPHA",
    "MASTERED",
    "SEEDS_TO_DECIDE",
    "SOLVED",
    "TIE_MARGIN",
    "Comparison",
    "Outcome",
    "Verdict",
    "compare",
    "design_effect",
    "effective",
    "heading",
    "holm",
    "iqm",
    "mean",
    "mean_interval",
    "normalised",
    "over_seeds",
    "p_above",
    "pooled",
    "rankable",
    "seeds_needed",
    "sentence",
    "sequential",
    "share_alpha",
    "solve_rate",
    "together",
    "verdict",
    "wilson",
]
