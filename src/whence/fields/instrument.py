"""The fields instrument: comparisons in which one part of the model varies, renderings and analyses."""

from __future__ import annotations

import os.path
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import plotly.graph_objects as go

from whence import stats
from whence.config import Config
from whence.errors import UserError
from whence.experiments.instrument import Action, Instrument, Measurement, OnProgress
from whence.experiments.results import final_metrics, read_results
from whence.experiments.table import Cell, Column, Criterion, PlannedTable, Row, Table, over_seeds
from whence.fields import images
from whence.fields.analysis import ANALYSES, Analysis, analyze
from whence.fields.config import AnalyzeConfig, FieldModelConfig, FieldsConfig, Output, RenderConfig
from whence.fields.cost import COSTS, cost_request, measure_cost
from whence.fields.decode import enlarge, parse_size
from whence.fields.hyponets import HYPONETS
from whence.fields.page import quality_by_variant
from whence.fields.run import FieldsRun, load_model
from whence.inputs import file_digest
from whence.store.artifacts import Artifact, ArtifactKind
from whence.store.runs import Store

LP_COUNTS = (64, 16, 32, 128, 256)
PLACEMENTS = ("equidistant", "middle", "n_group", "random", "adaptive", "hierarchical")
TRANSFORMER_ENCODINGS = {"sinusoidal": "sinusoidal", "learned": "learned", "rope": "rope", "no encoding": "none"}
MLP_STEPS = 64
"""Steps per unit of the MLP ratio, for matching the parameter counts of encoders"""
COST_COLUMNS = {"encode": "encode (ms)", "decode": "decode (ms)", "memory": "memory (MiB)"}
"""Time to encode one signal and to decode it at the input resolution, and memory to encode it"""


# --- on request


class RenderRequest(Config):
    """Everything that the bytes of a rendering depend on."""

    run: str
    input_checksum: str
    height: int
    width: int
    output: Output
    suffix: str


class Rendering(Config):
    """A record of a rendered file. Files can have 200 MB, so that the store keeps the checksum and no copy."""

    input_height: int
    input_width: int
    checksum: str
    """Of the bytes of the file"""
    seconds: float


RENDERINGS = ArtifactKind("field_rendering", RenderRequest, Rendering)


REQUIRED = {"run": "the id of a trained run (see 'whence runs list')", "input": "--input FILE", "out": "--out FILE"}


def render(config: RenderConfig, store: Store, on_progress: OnProgress) -> Artifact[RenderRequest, Rendering]:
    """Render to `config.out`, unless that file has the checksum of the same rendering already."""
    for name, expected in REQUIRED.items():
        if not getattr(config, name):
            raise UserError(f"{name}: missing. Expected {expected}.")
    model, run = load_model(store, config.run)
    if len(model.size) != 2 or model.channels != 3:
        raise UserError(
            f"run: expected a run on colour images, got {run.id} on {run.data}. Train one: whence fields train"
        )
    if config.output == "render" and model.renderer is None:
        raise UserError("output: this run has no residual render (render_width is 0). Use --output field.")
    image = images.read(config.input)
    input_height, input_width = image.shape[1:]
    height, width = parse_size(config.size, input_height, input_width)
    out = images.check_out(config.out, height * width)
    request = RenderRequest(
        run=run.id,
        input_checksum=file_digest(config.input, "input"),
        height=height,
        width=width,
        output=config.output,
        suffix=out.suffix.lower(),
    )
    known = RENDERINGS.find(request, store)
    if known is not None and os.path.isfile(out) and file_digest(out, "out") == known.result.checksum:
        return known
    started = time.perf_counter()

    def on_window(done: int, total: int) -> None:
        on_progress(f"Rendering window {done} of {total}")

    rendered = enlarge(model, image, (height, width), config.output, on_window)
    images.write(out, rendered)
    seconds = round(time.perf_counter() - started, 3)
    checksum = file_digest(out, "out")
    rendering = Rendering(input_height=input_height, input_width=input_width, checksum=checksum, seconds=seconds)
    return RENDERINGS.save(request, rendering, store)


def analyze_run(config: AnalyzeConfig, store: Store, on_progress: OnProgress) -> Analysis:
    model, run = load_model(store, config.run)
    return ANALYSES.measure(AnalyzeConfig(run=run.id), store, lambda: analyze(model, run, on_progress))


RENDER = Action("render", RenderConfig, render, lambda config: f"{config.input} at {config.size}, run {config.run}")
ANALYZE = Action("analyze", AnalyzeConfig, analyze_run, lambda config: f"Analysis of run {config.run}")


# --- comparisons


VARIED = {
    "lps": ("lps",),
    "placement": ("placement", "conditional"),
    "hyponet": ("hyponet",),
    "encoder": ("mixer", "encoding"),
}
"""By axis, the model fields that its variants set"""


def variants(config: FieldsConfig) -> dict[str, FieldModelConfig]:
    """By name, the models. The others are compared with the first."""
    usual = FieldsConfig().model
    for field in VARIED[config.axis]:
        if getattr(config.model, field) != getattr(usual, field):
            raise UserError(f"{field}: expected no value, because axis {config.axis} varies it. Remove it.")

    def model(**changes: object) -> FieldModelConfig:
        return FieldModelConfig.read({**config.model.model_dump(), **changes})

    if config.axis == "lps":
        return {f"M={count}": model(lps=count) for count in LP_COUNTS}
    if config.axis == "placement":
        placements = {name: model(placement=name) for name in PLACEMENTS}
        return {**placements, "conditional": model(conditional=True)}
    if config.axis == "hyponet":
        return {name: model(hyponet=name) for name in ("cross_attention", *HYPONETS.names())}
    baseline = model(mixer="bimamba", encoding="none")
    transformers = {
        f"LP + Transformer, {name}": _matched(config, model(mixer="attention", encoding=encoding), baseline)
        for name, encoding in TRANSFORMER_ENCODINGS.items()
    }
    sinusoidal = model(mixer="bimamba", encoding="sinusoidal")
    return {"LP + bimamba": baseline, "LP + bimamba, sinusoidal": sinusoidal, **transformers}


def _matched(config: FieldsConfig, model: FieldModelConfig, other: FieldModelConfig) -> FieldModelConfig:
    """With the narrowest MLP at which the model has at least as many parameters as the other."""

    def widened(steps: int) -> FieldModelConfig:
        return model.model_copy(update={"mlp_ratio": steps / MLP_STEPS})

    target = _run(config, other, 0).parameters()
    widths = range(MLP_STEPS * 64)
    return widened(bisect_left(widths, target, key=lambda steps: _run(config, widened(steps), 0).parameters()))


def _run(config: FieldsConfig, model: FieldModelConfig, seed: int) -> FieldsRun:
    return FieldsRun.read({"data": config.data, "model": model, "training": config.training.model_dump(), "seed": seed})


class Fields(Instrument[FieldsConfig, FieldsRun]):
    name = "fields"
    config = FieldsConfig
    run = FieldsRun
    actions = (RENDER, ANALYZE)

    def title(self, config: FieldsConfig) -> str:
        return f"{config.title}, {stats.count(config.seeds, 'seed')}"

    def plan(self, config: FieldsConfig, store: Store) -> list[PlannedTable[FieldsRun]]:
        runs = {
            name: [_run(config, model, seed) for seed in config.seed_range] for name, model in variants(config).items()
        }
        criterion = Criterion(stats.PSNR, "psnr_x1", part="at ×1")
        pairs = stats.against(next(iter(runs)), runs)
        return [PlannedTable(config.title, runs, pairs, [criterion], config.data.build().held_out_name)]

    def rows(
        self, planned: PlannedTable[FieldsRun], rows: Sequence[Row[FieldsRun]], store: Store
    ) -> list[Row[FieldsRun]]:
        return [replace(row, cells=_cells(row, store)) for row in rows]

    def columns(self, planned: PlannedTable[FieldsRun], rows: Sequence[Row[FieldsRun]]) -> list[Column]:
        first = next((row.finished[0] for row in rows if row.finished), None)
        scales = [quality.scale for quality in final_metrics(first).test.scales] if first else []
        return [
            Column("validation_x1", "validation PSNR ×1 (dB)"),
            *(Column(f"psnr_x{scale}", f"test PSNR ×{scale} (dB)") for scale in scales),
            Column("parameters", "parameters"),
            *(Column(name, title) for name, title in COST_COLUMNS.items()),
        ]

    def caption(self, table: Table[FieldsRun]) -> str:
        return (
            "PSNR of the field on held-out signals, mean over seeds with 95 % interval; ×1 is the resolution of the "
            "input. Times are measured on one thread"
        )

    def measurements(self, planned: PlannedTable[FieldsRun], store: Store) -> list[Measurement[Any, Any]]:
        """Time and memory of every variant, measured on its first finished run."""
        measurements = []
        for name, runs in planned.variants.items():
            finished = (result.run for result in read_results(runs, store) if result.state == "finished")
            if run := next(finished, None):
                label = f"Measuring time and memory of {name}"
                measurements.append(Measurement(COSTS, cost_request(run), label, partial(measure_cost, store, run)))
        return measurements

    def figures(self, table: Table[FieldsRun]) -> Mapping[str, go.Figure]:
        return {"PSNR by variant": quality_by_variant(table)}


def _cells(row: Row[FieldsRun], store: Store) -> dict[str, Cell]:
    run = row.results[0].run
    cells = {"parameters": Cell(f"{run.parameters():,}")}
    metrics = {result.run.seed: final_metrics(result) for result in row.finished}
    if metrics:
        validation = {seed: one.validation.scales[0].field.psnr for seed, one in metrics.items()}
        cells["validation_x1"] = over_seeds(validation, digits=2)
        for level in zip(*(one.test.scales for one in metrics.values()), strict=True):
            by_seed = {seed: quality.field.psnr for seed, quality in zip(metrics, level, strict=True)}
            cells[f"psnr_x{level[0].scale}"] = over_seeds(by_seed, digits=2)
    cost = COSTS.find(cost_request(run), store)
    return cells | {name: Cell(f"{getattr(cost.result, name):.1f}" if cost else "–") for name in COST_COLUMNS}


FIELDS = Fields()
