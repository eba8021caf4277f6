"""Findings of a comparison of mitigations: verdicts, effects on leakage, and costs in reconstruction error."""

from __future__ import annotations

import math
from collections.abc import Callable

from whence import stats
from whence.experiments.results import final_metrics
from whence.experiments.table import Row, Table
from whence.formatting import share
from whence.leak.audit.verdict import DEAD, leak_of
from whence.leak.config import COMPARED
from whence.leak.metrics import LEAKS, MASK_RATIOS, Leak, PredictionMeasures, RatioTable, at_ratio
from whence.leak.run import LeakRun

BELOW_ONE = tuple(ratio for ratio in MASK_RATIOS if ratio < 1)
REDUCED = 0.5
"""A mitigation reduces a leak if less than this share of it remains."""
DECODED = 0.5
"""R² of a probe from which position is said to be decodable."""


def conclusion(table: Table[LeakRun]) -> str:
    """The result in one sentence: which mitigations remove the leak of the reference."""
    reference, *others = table.rows
    # where runs failed, seeds disagree or positions have a table of their own, every row is reported by itself
    plain = all(row.finished and len(leaks(row)) == 1 and not has_explicit_prior(row) for row in table.rows)
    leak = worst_leak(reference) if plain and not reconstructs_nothing(reference) else None
    clean = leak == "clean" and all(worst_leak(row) == "clean" for row in others)
    if not others or not (leak == "leaky" or clean):
        verdicts = [f"{row.name}: {', '.join(verdict_words(row))}" for row in table.rows]
        return f"{'; '.join(verdicts)}."
    if clean:
        return f"{reference.name} has no leak to remove: predictions do not depend on absolute position."
    groups: dict[str, list[str]] = {}
    for row in others:
        groups.setdefault(_outcome(row), []).append(row.name)
    clauses = [f"{stats.listed(groups[verb])} {verb}" for verb in OUTCOMES if verb in groups]
    size = f"shift sensitivity up to {share(largest_shift(reference))}"
    return f"Position leaks in the reference, {reference.name} ({size}): {'; '.join(clauses)}."


REMOVED, KEPT, UNDECIDED, DESTROYED = (
    "removed it",
    "did not remove it",
    "could not be decided because of noise",
    "reconstructed nothing",
)
OUTCOMES = (REMOVED, KEPT, UNDECIDED, DESTROYED)


def _outcome(row: Row[LeakRun]) -> str:
    if reconstructs_nothing(row):
        return DESTROYED
    return {"clean": REMOVED, "undecided": UNDECIDED}.get(worst_leak(row), KEPT)


def largest_shift(row: Row[LeakRun]) -> float:
    """The largest mean shift sensitivity over mask ratios."""
    return max(judged_mean(row, ratio, lambda m: m.shift.sensitivity) for ratio in BELOW_ONE)


def ratios_by_seed(row: Row[LeakRun]) -> dict[int, RatioTable]:
    return {result.run.seed: final_metrics(result).ratios for result in row.finished}


def mean(row: Row[LeakRun], ratio: float, name: str) -> float | None:
    return row.cell(f"{name}@{ratio:g}").mean


def judged_mean(row: Row[LeakRun], ratio: float, measure: Callable[[PredictionMeasures], float]) -> float:
    """The mean over seeds that a verdict is based on: without the explicit prior."""
    return stats.mean([measure(ratios[ratio].judged) for ratios in ratios_by_seed(row).values()])


def has_explicit_prior(row: Row[LeakRun]) -> bool:
    return any(metrics.without_prior for ratios in ratios_by_seed(row).values() for metrics in ratios.values())


def reconstructs_nothing(row: Row[LeakRun]) -> bool:
    return all(stats.mean([table[r].error for table in ratios_by_seed(row).values()]) >= DEAD for r in MASK_RATIOS)


def leaks(row: Row[LeakRun]) -> set[Leak]:
    return {leak_of(ratios) for ratios in ratios_by_seed(row).values()}


def worst_leak(row: Row[LeakRun]) -> Leak:
    return max(leaks(row), key=LEAKS.index)


def verdict_words(row: Row[LeakRun]) -> list[str]:
    if not row.finished:
        return [row.state]
    marks = {
        "seeds disagree": len(leaks(row)) > 1,
        "explicit prior": has_explicit_prior(row),
        "reconstructs nothing": reconstructs_nothing(row),
    }
    return [worst_leak(row), *(mark for mark, holds in marks.items() if holds)]


def cost(table: Table[LeakRun], row: Row[LeakRun], ratio: float) -> tuple[float, tuple[float, float] | None] | None:
    """The factor by which the error changes relative to the first row, and its 95 % interval over paired seeds."""
    mine, reference = (of.cell(f"error@{ratio:g}").per_seed for of in (row, table.rows[0]))
    logs = [math.log(mine[seed] / reference[seed]) for seed in sorted(set(mine) & set(reference))]
    if not logs:
        return None
    interval = stats.mean_interval(logs)
    return math.exp(stats.mean(logs)), None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def effect(table: Table[LeakRun], row: Row[LeakRun]) -> str:
    """A sentence on the leak and on the cost in error; without a reference, on the leak of the row itself."""
    reference = table.rows[0] if table.rows[0].finished else row
    words = [_leak(row, reference)]
    dead = reconstructs_nothing(row)
    if dead and (row is reference or reconstructs_nothing(reference)):
        words.append("the model reconstructs nothing")
    elif dead:
        words.append("it makes the model reconstruct nothing")
    elif row is not reference:
        factors = ", ".join(f"{_factor(table, row, ratio)} {at_ratio(ratio)}" for ratio in COMPARED)
        words.append(f"normalized MSE {factors}")
    return "; ".join(words)


def _leak(row: Row[LeakRun], reference: Row[LeakRun]) -> str:
    shift = share(largest_shift(row))
    variance = judged_mean(row, 1.0, lambda m: m.position_variance)
    leak = worst_leak(row)
    if leak == "clean":
        prior = "position enters through the explicit prior only; " if has_explicit_prior(row) else ""
        removes = row is not reference and worst_leak(reference) != "clean"
        verb = "removes the leak" if removes else "no leak"
        return f"{prior}{verb}: predictions do not depend on absolute position"
    if row is reference:
        between = f"the position variance at mask ratio 1 is {share(variance)} of the target variance"
        return f"shift sensitivity up to {shift}; {between}"
    left = f"shift sensitivity is still up to {shift}"
    if leak == "undecided":
        limit = max(judged_mean(row, ratio, lambda m: m.shift.limit) for ratio in BELOW_ONE)
        return f"undecided: a shift sensitivity below {share(limit)} could not be detected because of noise"
    if leak == "traces":
        return f"reduces the leak to traces; {left}"
    before = judged_mean(reference, 1.0, lambda m: m.position_variance)
    decoded = mean(row, 1.0, "best_r2") or 0.0
    nonlinear = _linear(reference) is True and _linear(row) is False
    if nonlinear and (variance >= REDUCED * before or decoded >= DECODED):
        linear = f"|r| {mean(reference, 1.0, 'correlation'):.2f} to {mean(row, 1.0, 'correlation'):.2f}"
        return f"removes only the linear part of the leak ({linear}; probe R² {decoded:.2f}); {left}"
    if variance < REDUCED * before:
        reduced = f"position variance at mask ratio 1: {share(variance)} instead of {share(before)}"
        return f"reduces the leak ({reduced}) without removing it; {left}"
    return f"does not remove the leak; {left}"


def _linear(row: Row[LeakRun]) -> bool | None:
    """Whether predictions at mask ratio 1 correlate with position beyond chance; None if they are equal on any seed."""
    correlation, chance = mean(row, 1.0, "correlation"), mean(row, 1.0, "correlation_chance")
    return None if correlation is None or chance is None else correlation > chance


def _factor(table: Table[LeakRun], row: Row[LeakRun], ratio: float) -> str:
    factor = cost(table, row, ratio)
    if factor is None:
        return "unknown"
    value, interval = factor
    return f"×{value:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")
