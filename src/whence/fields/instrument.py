"""Comparisons of field models: one part varied, all else equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import plotly.graph_objects as go

from whence import stats
from whence.config import Config
from whence.experiments.instrument import Instrument, Measurement
from whence.experiments.results import read_results
from whence.experiments.table import Cell, Column, Criterion, PlannedTable, Row, Table, over_seeds
from whence.fields.config import FieldsConfig
from whence.fields.cost import encoding_peak, milliseconds
from whence.fields.model import FieldSpec
from whence.fields.run import FieldsRun, load
from whence.report.figures import COLOURS, figure_of
from whence.store.artifacts import ArtifactKind
from whence.store.runs import Store

COSTS = {"encode": "encode (ms)", "decode": "decode (ms)", "memory": "memory (MiB)"}
"""To encode one signal, to decode it at its own resolution, and the memory to encode it"""


class CostRequest(Config):
    """A cost belongs to an architecture, whatever its weights are."""

    data: str
    model: FieldSpec


class Cost(Config):
    """Of encoding one signal, and of decoding it at its own resolution."""

    encode: float
    decode: float
    memory: float


COST = ArtifactKind("field_cost", CostRequest, Cost)


class Fields(Instrument[FieldsConfig, FieldsRun]):
    name = "fields"
    command = ("fields", "ablate")
    config = FieldsConfig
    run = FieldsRun

    def title(self, config: FieldsConfig) -> str:
        return f"{config.title}, {stats.count(config.seeds, 'seed')}"

    def plan(self, config: FieldsConfig, store: Store) -> list[PlannedTable[FieldsRun]]:
        runs = config.runs()
        baseline = next(iter(runs))
        held_out = runs[baseline][0].data.build().held_out_name
        criterion = Criterion(stats.PSNR, "psnr_x1", part="at ×1")
        return [PlannedTable(config.title, runs, stats.against(baseline, runs), [criterion], held_out)]

    def rows(
        self, planned: PlannedTable[FieldsRun], rows: Sequence[Row[FieldsRun]], store: Store
    ) -> list[Row[FieldsRun]]:
        return [replace(row, cells=_cells(row, store)) for row in rows]

    def columns(self, planned: PlannedTable[FieldsRun], rows: Sequence[Row[FieldsRun]]) -> list[Column]:
        scales = next((list(row.finished[0].metrics["test"]["scales"]) for row in rows if row.finished), [])
        return [
            Column("validation_x1", "validation ×1"),
            *(Column(f"psnr_x{scale}", f"test ×{scale}") for scale in scales),
            Column("parameters", "parameters"),
            *(Column(name, title) for name, title in COSTS.items()),
        ]

    def caption(self, table: Table[FieldsRun]) -> str:
        return "PSNR (dB) of the field on held-out signals, with 95 % intervals over seeds"

    def measurements(self, planned: PlannedTable[FieldsRun], store: Store) -> list[Measurement[Any, Any]]:
        """Time and memory of every variant, by the first of its runs that has finished."""
        finished = {
            name: [result.run for result in read_results(runs, store) if result.state == "finished"]
            for name, runs in planned.variants.items()
        }
        return [
            Measurement(
                COST, cost_request(runs[0]), f"Measuring time and memory of {name}", partial(_cost, store, runs[0])
            )
            for name, runs in finished.items()
            if runs
        ]

    def figures(self, table: Table[FieldsRun]) -> Mapping[str, go.Figure]:
        return {"Quality by variant": quality_by_variant(table)}


FIELDS = Fields()


def cost_request(run: FieldsRun) -> CostRequest:
    return CostRequest(data=str(run.data), model=run.model)


def _cost(store: Store, run: FieldsRun) -> Cost:
    model, _ = load(store, run.id)
    return Cost(**milliseconds(model), memory=encoding_peak(model.spec, model.channels, model.size))


def _cells(row: Row[FieldsRun], store: Store) -> dict[str, Cell]:
    run = row.results[0].run
    cells = {"parameters": Cell(f"{run.parameters():,}")}
    if row.finished:
        for scale in row.finished[0].metrics["test"]["scales"]:
            cells[f"psnr_x{scale}"] = over_seeds(_quality(row, scale, "test"), digits=2)
        cells["validation_x1"] = over_seeds(_quality(row, "1", "validation"), digits=2)
    artifact = COST.find(cost_request(run), store)
    for name in COSTS:
        cells[name] = Cell(f"{getattr(artifact.result, name):.1f}" if artifact else "–")
    return cells


def _quality(row: Row[FieldsRun], scale: str, split: str) -> dict[int, float]:
    """PSNR of the field by seed."""
    return {r.run.seed: r.metrics[split]["scales"][scale]["field"]["psnr"] for r in row.finished}


def quality_by_variant(table: Table[FieldsRun]) -> go.Figure:
    """At the input's own resolution: every seed a dot, means with 95 % intervals."""
    figure = figure_of("PSNR (dB) of the field at ×1, held-out signals", "")
    cells = {row.name: row.cell("psnr_x1") for row in table.rows if row.finished}
    dots = [(value, name) for name, cell in cells.items() for value in cell.per_seed.values()]
    figure.add_scatter(
        x=[value for value, _ in dots],
        y=[name for _, name in dots],
        name="seed",
        mode="markers",
        marker={"color": COLOURS[1], "size": 8, "symbol": "circle-open"},
    )
    reach = [(cell.interval[1] - cell.interval[0]) / 2 if cell.interval else 0.0 for cell in cells.values()]
    figure.add_scatter(
        x=[cell.mean for cell in cells.values()],
        y=list(cells),
        name="mean, 95 %",
        mode="markers",
        marker={"color": COLOURS[0], "size": 11, "symbol": "diamond"},
        error_x={"type": "data", "array": reach, "color": COLOURS[0]},
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(ticksuffix=" dB")
    figure.update_layout(height=160 + 44 * len(cells))
    return figure
