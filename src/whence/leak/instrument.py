"""Comparisons of mitigations: the effect of each on leakage, and its cost in reconstruction error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from whence import stats
from whence.experiments.instrument import Instrument
from whence.experiments.table import Cell, Column, Criterion, PlannedTable, Row, Table
from whence.formatting import number
from whence.leak.audit.artifact import AUDIT
from whence.leak.audit.verdict import DEAD, SHIFT_THRESHOLD, VARIANCE_THRESHOLD
from whence.leak.config import COMPARED, LeakConfig
from whence.leak.findings import BELOW_ONE, conclusion, effect, ratios_by_seed, reconstructs_nothing, verdict_words
from whence.leak.metrics import MASK_RATIOS, RatioMetrics, at_ratio
from whence.leak.page import POSITION_VARIANCE, SHIFT_TEST
from whence.leak.run import LeakRun
from whence.report.figures import figure_of, style_at
from whence.report.html import bullets, html_table
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
    *(Column(f"error@{ratio:g}", f"normalized MSE at {ratio:g}") for ratio in COMPARED),
    Column("position_variance@1", "position variance at 1"),
    Column("best_r2@1", "probe R² at 1", detail=True),
]
FURTHER = [
    *(Column(f"error@{ratio:g}", f"normalized MSE at {ratio:g}") for ratio in MASK_RATIOS if ratio not in COMPARED),
    Column("correlation@1", "|r| with position at 1"),
    Column("correlation_chance@1", "|r| by chance"),
    Column("similarity@1", "cosine between predictions at 1"),
]
"""Measures of a table of their own, among the evidence"""


CONTROLS = (
    "Controls: variants with the same seed are trained on the same recordings and masks, and evaluated on the same "
    "held-out examples."
)
THRESHOLDS = (
    f"Thresholds of the verdicts: leaky from a shift sensitivity of {SHIFT_THRESHOLD:g} or, at mask ratio 1, a "
    f"position variance of {VARIANCE_THRESHOLD:g}; reconstructs nothing from a normalized MSE of {DEAD:g} at every "
    "mask ratio."
)
LIMITS = "Limits: the verdicts are about this model, these data and this mask pattern."


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
        elif any(row.finished and not reconstructs_nothing(row) for row in table.rows[1:]):
            lines.append(
                f"Factors are normalized MSE relative to {reference.name} at the same mask ratio, with 95 % intervals "
                "over seeds."
            )
        return [*lines, *table.lost, *stats.report(table.comparisons)]

    def conclusion(self, table: Table[LeakRun]) -> str:
        return conclusion(table)

    def evidence(self, table: Table[LeakRun]) -> list[str]:
        rows = [[row.name, *(row.cell(column.key).text for column in FURTHER)] for row in table.rows]
        titles = ["variant", *(column.title for column in FURTHER)]
        return [
            bullets([SHIFT_TEST, POSITION_VARIANCE, CONTROLS, THRESHOLDS, LIMITS]),
            html_table(titles, rows, label="further measures", row_headers=True, stack=True),
        ]

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
    tables = ratios_by_seed(row)
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
