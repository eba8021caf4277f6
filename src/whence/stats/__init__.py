"""Statistics and verdicts. No other package decides or words a verdict on a comparison.

cells        one score: its interval, its test against the shortcut baseline, its verdict
metric       unit, direction and tie margin of a score
pairs        comparisons of methods over paired seeds: `compare`, one rule for every metric
fixed        the test at a planned number of seeds
sequential   the test that is valid while seeds are added
wording      verdicts as sentences
"""

from whence.stats.cells import (
    ALPHA,
    MASTERED,
    SOLVED,
    design_effect,
    effective,
    holm,
    iqm,
    mean,
    mean_interval,
    normalised,
    over_seeds,
    p_above,
    pooled,
    rankable,
    solve_rate,
    verdict,
    wilson,
)
from whence.stats.evidence import SEEDS_TO_DECIDE
from whence.stats.metric import ACCURACY, FVU, LOSS, NORMALIZED_ERROR, PSNR, Metric
from whence.stats.pairs import (
    Comparison,
    Pair,
    TestDesign,
    against,
    all_pairs,
    compare,
    pair,
    seeds_needed,
)
from whence.stats.wording import conclusion, count, heading, listed, open_pairs, plan_note, report, sentence, short

__all__ = [
    "ACCURACY",
    "ALPHA",
    "FVU",
    "LOSS",
    "MASTERED",
    "NORMALIZED_ERROR",
    "PSNR",
    "SEEDS_TO_DECIDE",
    "SOLVED",
    "Comparison",
    "Metric",
    "Pair",
    "TestDesign",
    "against",
    "all_pairs",
    "compare",
    "conclusion",
    "count",
    "design_effect",
    "effective",
    "heading",
    "holm",
    "iqm",
    "listed",
    "mean",
    "mean_interval",
    "normalised",
    "open_pairs",
    "over_seeds",
    "p_above",
    "pair",
    "plan_note",
    "pooled",
    "rankable",
    "report",
    "seeds_needed",
    "sentence",
    "short",
    "solve_rate",
    "verdict",
    "wilson",
]
