"""Comparisons of mitigations: the effect of each on leakage, and its cost in reconstruction error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from whence import stats
from whence.experiments.instrument import Instrument
from whence.experiments.results import final_metrics
from whence.experiments.table import Cell, Column, Criterion, PlannedTable, Row, Table
from whence.formatting import number, share
from whence.leak.audit.artifact import AUDIT
from whence.leak.audit.verdict import DEAD, leak_of
from whence.leak.config import COMPARED, LeakConfig
from whence.leak.metrics import LEAKS, MASK_RATIOS, Leak, PredictionMeasures, RatioMetrics, RatioTable, at_ratio
from whence.leak.run import LeakRun
from whence.report.figures import figure_of, style_at
from whence.store.runs import Store

MEASURES: dict[str, Callable[[RatioMetrics], float | None]] = {
    "error": lambda m: m.error,
    "shift": lambda m: m.shift.sensitivity,
    "correlation": lambda m: m.correlation,
    "correlation_chance": lambda m: m.correlation_chance,
    "similarity": lambda m: m.similarity,
    "position_variance": lambda m: m.position_variance,
    "eta2": lambda m: m.eta2,
    "r2": lambda m: m.probe.r2 if m.probe else None,
    "best_r2": lambda m: m.probe.best if m.probe else None,
}
"""Cells of a table, one per mask ratio: `error@0.5`"""
COLUMNS = [
    Column("verdict", "verdict"),
    *(Column(f"shift@{ratio:g}", f"shift sensitivity at {ratio:g}") for ratio in COMPARED),
    *(
        Column(f"error@{ratio:g}", f"normalized MSE at {ratio:g}", detail=ratio not in COMPARED)
        for ratio in MASK_RATIOS
    ),
    Column("position_variance@1", "position variance at 1"),
    Column("correlation@1", "|r| at 1", detail=True),
    Column("correlation_chance@1", "|r| by chance", detail=True),
    Column("similarity@1", "similarity at 1", detail=True),
    Column("best_r2@1", "probe R² at 1", detail=True),
]
BELOW_ONE = tuple(ratio for ratio in MASK_RATIOS if ratio < 1)
REDUCED = 0.5
"""A mitigation reduces a leak if less than this share of it remains."""
DECODED = 0.5
"""R² of a probe from which position is said to be decodable."""


class LeakInstrument(Instrument[LeakConfig, LeakRun]):
    name = "leak"
    config = LeakConfig
    run = LeakRun
    actions = (AUDIT,)

    def title(self, config: LeakConfig) -> str:
        return f"{config.data}: {', '.join(map(str, config.mitigations))}, {stats.count(config.seeds, 'seed')}"

    def plan(self, config: LeakConfig, store: Store) -> list[PlannedTable[LeakRun]]:
        variants = config.runs()
        first = next(iter(variants))
        run = variants[first][0]
        pairs = stats.against(first, variants)
        criteria = [Criterion(stats.NORMALIZED_ERROR, f"error@{ratio:g}", part=at_ratio(ratio)) for ratio in COMPARED]
        title = f"{run.data} · {run.model.backbone}"
        return [PlannedTable(title, variants, pairs, criteria, run.data.build().held_out_name)]

    def rows(self, planned: PlannedTable[LeakRun], rows: Sequence[Row[LeakRun]], store: Store) -> list[Row[LeakRun]]:
        return [replace(row, cells=_cells(row)) for row in rows]

    def columns(self, planned: PlannedTable[LeakRun], rows: Sequence[Row[LeakRun]]) -> list[Column]:
        return COLUMNS

    def caption(self, table: Table[LeakRun]) -> str:
        return (
            "Columns are at mask ratios 0.5, 0.9, and 1. Shift sensitivity: share of the prediction variance caused by "
            "translating content and mask together (0: no leakage). Normalized MSE: relative to predicting the mean "
            "(1). Position variance: variance of predictions between positions, relative to the target variance."
        )

    def findings(self, table: Table[LeakRun]) -> list[str]:
        reference = table.rows[0]
        lines = [f"{row.name}: {effect(table, row)}." for row in table.rows if row.finished]
        if not reference.finished:
            lines.append(f"No run of {reference.name} has finished, so that errors have no reference.")
        elif len(table.rows) > 1:
            lines.append(
                f"Factors are normalized MSE relative to {reference.name} at the same mask ratio, with 95 % intervals "
                "over seeds."
            )
        return [*lines, *table.lost, *stats.report(table.comparisons)]

    def style(self, table: Table[LeakRun], name: str) -> Mapping[str, str]:
        return style_at([row.name for row in table.rows].index(name))

    def figures(self, table: Table[LeakRun]) -> Mapping[str, go.Figure]:
        if not any(row.finished for row in table.rows):
            return {}
        errors = _over_ratios(table, "error", MASK_RATIOS, "normalized MSE (1 = predicting the mean)")
        errors.add_hline(1, line_dash="dot", line_color="#888", annotation_text="predicting the mean")
        shifts = _over_ratios(table, "shift", BELOW_ONE, "shift sensitivity (share of variance)")
        return {"Shift sensitivity by mask ratio": shifts, "Reconstruction error by mask ratio": errors}


LEAK = LeakInstrument()


def _cells(row: Row[LeakRun]) -> dict[str, Cell]:
    cells = {"verdict": Cell(verdict=", ".join(verdict_words(row)))}
    tables = _by_seed(row)
    for ratio in MASK_RATIOS if tables else ():
        for name, measure in MEASURES.items():
            values = {seed: measure(ratios[ratio]) for seed, ratios in tables.items()}
            per_seed = {seed: value for seed, value in values.items() if value is not None}
            if len(per_seed) < len(values):  # undefined on any seed, as correlations of equal predictions are
                cells[f"{name}@{ratio:g}"] = Cell(number(None))
                continue
            defined = list(per_seed.values())
            mean, interval = stats.mean(defined), stats.mean_interval(defined)
            cells[f"{name}@{ratio:g}"] = Cell(number(mean), per_seed, interval)
    return cells


def _by_seed(row: Row[LeakRun]) -> dict[int, RatioTable]:
    return {result.run.seed: final_metrics(result).ratios for result in row.finished}


def mean(row: Row[LeakRun], ratio: float, name: str) -> float | None:
    return row.cell(f"{name}@{ratio:g}").mean


def judged_mean(row: Row[LeakRun], ratio: float, measure: Callable[[PredictionMeasures], float]) -> float:
    """The mean over seeds that a verdict is based on: without the explicit prior."""
    return stats.mean([measure(ratios[ratio].judged) for ratios in _by_seed(row).values()])


def has_explicit_prior(row: Row[LeakRun]) -> bool:
    return any(metrics.without_prior for ratios in _by_seed(row).values() for metrics in ratios.values())


def reconstructs_nothing(row: Row[LeakRun]) -> bool:
    return all(stats.mean([table[r].error for table in _by_seed(row).values()]) >= DEAD for r in MASK_RATIOS)


def leaks(row: Row[LeakRun]) -> set[Leak]:
    return {leak_of(ratios) for ratios in _by_seed(row).values()}


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
    shift = share(max(judged_mean(row, ratio, lambda m: m.shift.sensitivity) for ratio in BELOW_ONE))
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


def _over_ratios(table: Table[LeakRun], measure: str, ratios: Sequence[float], label: str) -> go.Figure:
    """A line for the mean over seeds, and a dot for every seed."""
    figure = figure_of("mask ratio (%)", label)
    x = [100 * ratio for ratio in ratios]
    for row in table.rows:
        if not row.finished:
            continue
        line, name = LEAK.style(table, row.name), row.name
        cells = [row.cell(f"{measure}@{ratio:g}") for ratio in ratios]
        figure.add_scatter(x=x, y=[cell.mean for cell in cells], name=name, mode="lines", line=line, legendgroup=name)
        figure.add_scatter(
            x=[place for place, cell in zip(x, cells, strict=True) for _ in cell.per_seed],
            y=[value for cell in cells for value in cell.per_seed.values()],
            name=name,
            mode="markers",
            marker={"color": line["color"], "opacity": 0.7},
            legendgroup=name,
            showlegend=False,
        )
    return figure
