"""Comparisons of mitigations: what each does to the leak, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go

from whence import stats
from whence.experiments.instrument import Instrument
from whence.experiments.table import Cell, Column, Criterion, PlannedTable, Row, Table
from whence.formatting import number, share
from whence.leak import RATIOS
from whence.leak.audit.verdict import DEAD, LEAKS, Leak, judged, leaks
from whence.leak.audit.words import percent
from whence.leak.config import COMPARED, LeakConfig
from whence.leak.run import LeakRun
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.store.runs import Store

SHOWN = tuple(f"{ratio:g}" for ratio in RATIOS)
MEASURES: dict[str, tuple[str, ...]] = {
    "error": ("error",),
    "shift": ("shift", "of_prediction"),
    "correlation": ("correlation",),
    "correlation_chance": ("correlation_chance",),
    "similarity": ("similarity",),
    "position_variance": ("spread",),
    "eta2": ("eta2",),
    "r2": ("probe", "r2"),
    "best_r2": ("probe", "best"),
}
"""Where each measure is found in the metrics of a mask ratio"""
COLUMNS = [
    Column("verdict", "verdict"),
    *(Column(f"shift@{ratio}", f"shift sensitivity {percent(ratio)}") for ratio in ("0.5", "0.9")),
    *(Column(f"error@{ratio}", f"error {percent(ratio)}") for ratio in SHOWN),
    Column("correlation@1", "|r| at mask ratio 1"),
    Column("correlation_chance@1", "chance"),
    Column("similarity@1", "similarity"),
    Column("position_variance@1", "variance"),
    Column("best_r2@1", "R²"),
]
SHRUNK = 0.5
"""A mitigation shrinks a leak if it leaves less than this share of it."""
READ_OFF = 0.5
"""R² of a probe from which on position can be decoded."""


class LeakComparison(Instrument[LeakConfig, LeakRun]):
    name = "leak"
    config = LeakConfig
    run = LeakRun

    def title(self, config: LeakConfig) -> str:
        return f"{config.data}: {', '.join(map(str, config.mitigations))}, {stats.count(config.seeds, 'seed')}"

    def plan(self, config: LeakConfig, store: Store) -> list[PlannedTable[LeakRun]]:
        variants = config.runs()
        first = next(iter(variants))
        run = variants[first][0]
        pairs = stats.against(first, variants)
        criteria = [
            Criterion(stats.NORMALIZED_ERROR, f"error@{ratio}", part=f"at mask ratio {ratio}") for ratio in COMPARED
        ]
        title = f"{run.data} · {run.model.backbone}"
        return [PlannedTable(title, variants, pairs, criteria, run.data.build().held_out_name)]

    def rows(self, planned: PlannedTable[LeakRun], rows: Sequence[Row[LeakRun]], store: Store) -> list[Row[LeakRun]]:
        return [replace(row, cells=_cells(row)) for row in rows]

    def columns(self, planned: PlannedTable[LeakRun], rows: Sequence[Row[LeakRun]]) -> list[Column]:
        return COLUMNS

    def caption(self, table: Table[LeakRun]) -> str:
        return (
            "error, variance: relative to the variance of the targets · shift sensitivity: share of the prediction "
            "variance that changes when content and mask are shifted together · variance, R²: at mask ratio 1"
        )

    def findings(self, table: Table[LeakRun]) -> list[str]:
        reference = table.rows[0]
        lines = [f"{row.name}: {effect(table, row)}." for row in table.rows if row.finished]
        if not reference.finished:
            lines.append(f"No run of {reference.name} has finished, so there is no reference for the errors.")
        elif len(table.rows) > 1:
            lines.append(f"Errors are factors relative to {reference.name}, with 95 % intervals over seeds.")
        return [*lines, *table.lost, *stats.report(table.comparisons)]

    def style(self, table: Table[LeakRun], name: str) -> Mapping[str, str]:
        place = [row.name for row in table.rows].index(name)
        return {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[place // len(COLOURS) % len(DASHES)]}

    def figures(self, table: Table[LeakRun]) -> Mapping[str, go.Figure]:
        rows = {row.name: row for row in table.rows if row.finished}
        if not rows:
            return {}
        styles = {name: self.style(table, name) for name in rows}
        errors = _over_ratios(rows, styles, "error", SHOWN, "normalized error (1 = predicting the mean)")
        errors.add_hline(1, line_dash="dot", line_color="#888", annotation_text="predicting the mean")
        below_one = tuple(ratio for ratio in SHOWN if ratio != "1")
        shifts = _over_ratios(rows, styles, "shift", below_one, "share of the prediction variance")
        return {"Reconstruction": errors, "Shift sensitivity": shifts}


LEAK = LeakComparison()


def _cells(row: Row[LeakRun]) -> dict[str, Cell]:
    cells = {"verdict": Cell(verdict=", ".join(verdict_words(row)))}
    for ratio in SHOWN if row.finished else ():
        for name in MEASURES:
            values = _values(row, ratio, name)
            interval = stats.mean_interval(list(values.values())) if values else None
            mean = stats.mean(list(values.values())) if values else None
            cells[f"{name}@{ratio}"] = Cell(number(mean), values or {}, interval)
    return cells


def _ratios(row: Row[LeakRun]) -> dict[int, Mapping[str, Any]]:
    """By seed, the metrics of every mask ratio."""
    return {result.run.seed: result.metrics["ratios"] for result in row.finished}


def _values(row: Row[LeakRun], ratio: str, name: str) -> dict[int, float] | None:
    """By seed; None where it is undefined on any, as correlations of equal predictions are."""
    values = {seed: at(metrics[ratio], MEASURES[name]) for seed, metrics in _ratios(row).items()}
    return None if not values or None in values.values() else {seed: float(value) for seed, value in values.items()}


def mean(row: Row[LeakRun], ratio: str, name: str) -> float | None:
    return row.cell(f"{name}@{ratio}").mean


def without_prior(row: Row[LeakRun], ratio: str, *path: str) -> float:
    """The mean that a verdict is based on: without what an explicit prior adds."""
    return stats.mean([at(judged(metrics[ratio]), path) for metrics in _ratios(row).values()])


def has_explicit_prior(row: Row[LeakRun]) -> bool:
    return any(measures.get("inside") for metrics in _ratios(row).values() for measures in metrics.values())


def reconstructs_nothing(row: Row[LeakRun]) -> bool:
    errors = [stats.mean([metrics[ratio]["error"] for metrics in _ratios(row).values()]) for ratio in SHOWN]
    return min(errors) >= DEAD


def worst_leak(row: Row[LeakRun]) -> Leak:
    return LEAKS[max(LEAKS.index(leaks(metrics)) for metrics in _ratios(row).values())]


def verdict_words(row: Row[LeakRun]) -> list[str]:
    if not row.finished:
        return [row.state]
    marks = {
        "seeds disagree": len({leaks(metrics) for metrics in _ratios(row).values()}) > 1,
        "explicit prior": has_explicit_prior(row),
        "reconstructs nothing": reconstructs_nothing(row),
    }
    return [worst_leak(row), *(mark for mark, holds in marks.items() if holds)]


def cost(table: Table[LeakRun], row: Row[LeakRun], ratio: str) -> tuple[float, tuple[float, float] | None] | None:
    """By which factor the error changes relative to the first row, and its 95 % interval over paired seeds."""
    mine, reference = (of.cell(f"error@{ratio}").per_seed for of in (row, table.rows[0]))
    logs = [math.log(mine[seed] / reference[seed]) for seed in sorted(set(mine) & set(reference))]
    if not logs:
        return None
    interval = stats.mean_interval(logs)
    return math.exp(stats.mean(logs)), None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def effect(table: Table[LeakRun], row: Row[LeakRun]) -> str:
    """In words: what became of the leak, then what it costs; without a reference, the leak of the row itself."""
    reference = table.rows[0] if table.rows[0].finished else row
    words = [_leak(row, reference)]
    dead = reconstructs_nothing(row)
    if dead and (row is reference or reconstructs_nothing(reference)):
        words.append("the model reconstructs nothing")
    elif dead:
        words.append("the model is destroyed: it reconstructs nothing")
    elif row is not reference:
        factors = (f"{_factor(cost(table, row, ratio))} at {ratio}" for ratio in ("0.5", "0.9"))
        words.append(f"error {', '.join(factors)}")
    return "; ".join(words)


def _leak(row: Row[LeakRun], reference: Row[LeakRun]) -> str:
    below_one = [ratio for ratio in SHOWN if ratio != "1"]
    shift = max(without_prior(row, ratio, "shift", "of_prediction") for ratio in below_one)
    changes = f"changes {share(shift)} of the prediction variance"
    variance = without_prior(row, "1", "spread")
    leak = worst_leak(row)
    if leak == "clean":
        prior = "what position predicts is in the explicit prior; " if has_explicit_prior(row) else ""
        removes = row is not reference and worst_leak(reference) != "clean"
        return f"{prior}{'removes the leak' if removes else 'does not leak'}: predictions do not depend on position"
    if row is reference:
        apart = f"at mask ratio 1, predictions vary between positions by {share(variance)} of the target variance"
        return f"{apart}; a shift {changes}"
    left = f"a shift still {changes}"
    if leak == "undecided":
        limit = max(without_prior(row, ratio, "shift", "limit") for ratio in below_one)
        return f"undecided: noise hides changes below {share(limit)} of the prediction variance"
    if leak == "traces":
        return f"leaves traces; {left}"
    before = without_prior(reference, "1", "spread")
    decoded = mean(row, "1", "best_r2") or 0.0
    if _linear(reference) and not _linear(row) and (variance >= SHRUNK * before or decoded >= READ_OFF):
        straight = f"|r| {mean(reference, '1', 'correlation'):.2f} to {mean(row, '1', 'correlation'):.2f}"
        return f"removes its linear part only ({straight}; a probe still decodes position, R² {decoded:.2f}); {left}"
    if variance < SHRUNK * before:
        shrunk = f"to {share(variance)} from {share(before)} of the target variance"
        return f"shrinks it ({shrunk}) without removing it; {left}"
    return f"does not stop it; {left}"


def at(measures: Any, path: Sequence[str]) -> Any:
    """A number in nested measures; None where any part of the path is undefined."""
    for name in path:
        measures = None if measures is None else measures[name]
    return measures


def _linear(row: Row[LeakRun]) -> bool:
    """At mask ratio 1, do predictions correlate with position beyond chance?"""
    correlation, chance = mean(row, "1", "correlation"), mean(row, "1", "correlation_chance")
    return correlation is not None and chance is not None and correlation > chance


def _factor(factor: tuple[float, tuple[float, float] | None] | None) -> str:
    if factor is None:
        return "unknown"
    value, interval = factor
    return f"×{value:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def _over_ratios(
    rows: Mapping[str, Row[LeakRun]],
    styles: Mapping[str, Mapping[str, str]],
    measure: str,
    ratios: Sequence[str],
    label: str,
) -> go.Figure:
    """Every seed as a dot, their mean as a line."""
    figure = figure_of("mask ratio (%)", label)
    x = [100 * float(ratio) for ratio in ratios]
    for name, row in rows.items():
        line = dict(styles[name])
        cells = [row.cell(f"{measure}@{ratio}") for ratio in ratios]
        figure.add_scatter(x=x, y=[cell.mean for cell in cells], name=name, mode="lines", line=line, legendgroup=name)
        dots = [(place, value) for place, cell in zip(x, cells, strict=True) for value in cell.per_seed.values()]
        figure.add_scatter(
            x=[place for place, _ in dots],
            y=[value for _, value in dots],
            name=name,
            mode="markers",
            marker={"color": line["color"], "opacity": 0.7},
            legendgroup=name,
            showlegend=False,
        )
    return figure
