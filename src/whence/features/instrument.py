"""Comparisons of sparse autoencoders at the same number of active features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import plotly.graph_objects as go
import pydantic

from whence import stats
from whence.errors import from_validation
from whence.experiments.instrument import Instrument, Measurement
from whence.experiments.results import RunResult, final_metrics, read_results
from whence.experiments.table import Cell, Column, Criterion, PlannedTable, Row, Table, over_seeds
from whence.features.actions import ACTIONS, STABILITY, PairOfRuns, match_seeds
from whence.features.config import ALL, OWN, AutoencoderConfig, FeaturesConfig
from whence.features.data import ActivationData, build_data
from whence.features.figures import score_figures, strictness_section, style
from whence.features.metrics import DictionaryMetrics, FeaturesMetrics
from whence.features.run import PRESETS, FeaturesRun
from whence.features.sae.sparsity import SPARSITY, Sparsity
from whence.registry import Choice
from whence.store.runs import Store

BASELINE = "position_mean_topk"
"""The baseline for every positional mechanism."""
PLAIN = {"topk": "plain_topk", "l1": "plain_l1"}
"""By sparsity, the preset without position-dependent parts."""
L0_TOLERANCE = 0.05
"""Largest relative deviation from the requested number of active features at which a variant is compared"""
LARGEST_MATCHED = 4096
"""Number of features above which matching the directions of two seeds would take longer than training them"""
LEGEND = (
    "FVU: fraction of variance unexplained (1 − explained variance), on held-out activations. L0: active features per "
    "activation. Dead: share of features that are never active. Position-specific: number of features with at least "
    "half of their variance explained by position, mask off; position selectivity is the median of that share over "
    "features. Retention: correlation over positions of mask value and mean activation, mask off (by chance: with the "
    "masks of other features). Free, position-specific recovered: mean cosine with the true directions. In brackets: "
    "95 % intervals over seeds."
)


@dataclass(frozen=True)
class MetricColumn:
    """A column: its title, and how its value is read from the metrics of a run."""

    title: str
    read: Callable[[FeaturesMetrics, DictionaryMetrics], float | None]
    digits: int = 3
    percent: bool = False
    detail: bool = False


def _matched(kind: str) -> Callable[[FeaturesMetrics, DictionaryMetrics], float | None]:
    return lambda m, final: m.recovery[kind].matched if kind in m.recovery else None


COLUMNS: dict[str, MetricColumn] = {
    "fvu": MetricColumn("FVU", lambda m, final: m.fvu, 4),
    "l0": MetricColumn("L0", lambda m, final: m.l0, 1),
    "dead": MetricColumn("dead features", lambda m, final: final.dead, 1, percent=True),
    "fvu_mask_off": MetricColumn("FVU, mask off", lambda m, final: final.mask_off.fvu, 4),
    "l0_mask_off": MetricColumn("L0, mask off", lambda m, final: final.mask_off.l0, 1, detail=True),
    "position_specific": MetricColumn(
        "position-specific", lambda m, final: final.mask_off.position_selectivity.position_specific, 1
    ),
    "selectivity": MetricColumn(
        "position selectivity", lambda m, final: final.mask_off.position_selectivity.median, detail=True
    ),
    "retention": MetricColumn("retention", lambda m, final: r.median if (r := final.mask_off.retention) else None),
    "retention_chance": MetricColumn(
        "retention by chance", lambda m, final: r.chance if (r := final.mask_off.retention) else None, detail=True
    ),
    "free_recovered": MetricColumn("free recovered", _matched("free")),
    "position_specific_recovered": MetricColumn("position-specific recovered", _matched("position_specific")),
}


def planned_runs(config: FeaturesConfig) -> dict[str, list[FeaturesRun]]:
    """One run per seed, by name of the variant."""
    data = build_data(config.data)
    names = PRESETS.names() if config.presets == (ALL,) else list(dict.fromkeys(config.presets))
    plan = {name: _runs(config, data, PRESETS.read(name)) for name in names}
    return {**plan, **_controls(data, plan)} if config.controls else plan


def _runs(config: FeaturesConfig, data: ActivationData, preset: Mapping[str, Any]) -> list[FeaturesRun]:
    model = {"d_sae": config.d_sae or data.shape.default_d_sae, **preset["model"]}
    l0 = min(config.l0 or data.shape.default_l0, model["d_sae"])
    model["sparsity"] = _at_l0(model["sparsity"] if config.sparsity == OWN else config.sparsity, l0)
    training = {**config.training.model_dump(), **preset.get("training", {})}
    shared = {"data": config.data, "model": model, "training": training}
    return [FeaturesRun.read({**shared, "seed": seed}) for seed in config.seed_range]


def _at_l0(sparsity: str, l0: int) -> Choice[Sparsity]:
    """A sparsity mechanism with options for a number of active features."""
    try:
        choice = SPARSITY.choose(sparsity)
        return SPARSITY.choose({"name": choice.name, **choice.options(), **choice.variant.at_l0(l0)})
    except pydantic.ValidationError as error:
        raise from_validation(error, lambda path: [OWN, *SPARSITY.names()]) from None


def _controls(data: ActivationData, plan: Mapping[str, list[FeaturesRun]]) -> dict[str, list[FeaturesRun]]:
    """Controls: the same with position ablated, and plain autoencoders with as many parameters."""
    controls: dict[str, list[FeaturesRun]] = {}
    for name, runs in plan.items():
        model, d_in = runs[0].model, data.shape.d_in
        if model.uses_positions:
            ablated = model.model_copy(update={"position_ablated": True})
            controls[f"{name}, position ablated"] = [run.model_copy(update={"model": ablated}) for run in runs]
        d_sae = (runs[0].parameters() - d_in) // (2 * d_in + 1)
        if d_sae > 1.05 * model.d_sae:
            plain = AutoencoderConfig(d_sae=d_sae, sparsity=model.sparsity, centering=model.centering)
            controls[f"{name}, plain of the same size"] = [run.model_copy(update={"model": plain}) for run in runs]
    return controls


def controlled_pairs(sparsity: Mapping[str, str]) -> list[tuple[str, str]]:
    """Pairs of presets to compare: each with the position-mean baseline and with the plain one of its sparsity."""
    controls = [name for name in (BASELINE, *PLAIN.values()) if name in sparsity]
    pairs = []
    for control in controls:
        rivals = [name for name, kind in sparsity.items() if kind == sparsity[control]]
        pairs += [(a, b) for a, b in stats.against(control, rivals) if (b, a) not in pairs]
    return pairs


class Features(Instrument[FeaturesConfig, FeaturesRun]):
    name = "features"
    presets = PRESETS
    config = FeaturesConfig
    run = FeaturesRun
    actions = ACTIONS

    def title(self, config: FeaturesConfig) -> str:
        presets = "all presets" if config.presets == (ALL,) else stats.count(len(config.presets), "preset")
        return f"{presets}: {config.title}, {stats.count(config.seeds, 'seed')}"

    def plan(self, config: FeaturesConfig, store: Store) -> list[PlannedTable[FeaturesRun]]:
        variants = planned_runs(config)
        pairs = controlled_pairs({name: runs[0].model.sparsity.name for name, runs in variants.items()})
        held_out = next(iter(variants.values()))[0].data.build().held_out_name
        return [PlannedTable(config.title, variants, pairs, [Criterion(stats.FVU, "fvu")], held_out)]

    def rows(
        self, planned: PlannedTable[FeaturesRun], rows: Sequence[Row[FeaturesRun]], store: Store
    ) -> list[Row[FeaturesRun]]:
        return [replace(row, cells=_cells(row, store)) for row in rows]

    def columns(self, planned: PlannedTable[FeaturesRun], rows: Sequence[Row[FeaturesRun]]) -> list[Column]:
        """The columns that at least one run has."""
        there = [key for key in COLUMNS if any(row.cell(key).per_seed for row in rows)]
        return [
            *(Column(key, COLUMNS[key].title, COLUMNS[key].detail) for key in there),
            Column("stability", "seed stability", detail=True),
            Column("parameters", "parameters", detail=True),
        ]

    def comparable(self, planned: PlannedTable[FeaturesRun], row: Row[FeaturesRun], criterion: Criterion) -> bool:
        return at_requested_l0(row)

    def caption(self, table: Table[FeaturesRun]) -> str:
        return LEGEND

    def findings(self, table: Table[FeaturesRun]) -> list[str]:
        missed = [row for row in table.rows if row.finished and not at_requested_l0(row)]
        named = ", ".join(f"{row.name} ({row.cell('l0').mean:.1f} of {requested_l0(row):g})" for row in missed)
        away = f"more than {100 * L0_TOLERANCE:g} % from the requested number of active features"
        lines = [f"Not compared, since L0 is {away}: {named}."] if missed else []
        return [*table.lost, *lines, *stats.report(table.comparisons)]

    def measurements(self, planned: PlannedTable[FeaturesRun], store: Store) -> list[Measurement[Any, Any]]:
        """Agreement of the directions that two seeds learn."""
        pairs = {name: _first_two(read_results(runs, store)) for name, runs in planned.variants.items()}
        label = "Matching features of two seeds: "
        return [
            Measurement(STABILITY, pair, label + name, partial(match_seeds, store, pair))
            for name, pair in pairs.items()
            if pair
        ]

    def style(self, table: Table[FeaturesRun], name: str) -> Mapping[str, str]:
        return style(name)

    def figures(self, table: Table[FeaturesRun]) -> Mapping[str, go.Figure]:
        return score_figures(table)

    def sections(self, tables: Sequence[Table[FeaturesRun]], store: Store) -> Mapping[str, Sequence[str]]:
        return {table.title: strictness_section(table.rows) for table in tables}


FEATURES = Features()


def requested_l0(row: Row[FeaturesRun]) -> float:
    """The requested number of active features per activation; 0 if none was requested."""
    options = row.results[0].run.model.sparsity.options()
    return options.get("k") or options.get("l0", 0)


def at_requested_l0(row: Row[FeaturesRun]) -> bool:
    requested = requested_l0(row)
    return not requested or abs((row.cell("l0").mean or 0) / requested - 1) <= L0_TOLERANCE


def _cells(row: Row[FeaturesRun], store: Store) -> dict[str, Cell]:
    cells = {"parameters": Cell(f"{row.results[0].run.parameters():,}")}
    metrics = {result.run.seed: final_metrics(result) for result in row.finished}
    for key, column in COLUMNS.items():
        values = {seed: column.read(m, m.final) for seed, m in metrics.items() if m.final}
        known = {seed: float(value) for seed, value in values.items() if value is not None}
        scale, unit = (100.0, " %") if column.percent else (1.0, "")
        cells[key] = over_seeds(known, column.digits, scale=scale, unit=unit)
    pair = _first_two(row.results)
    artifact = STABILITY.find(pair, store) if pair else None
    cells["stability"] = Cell(f"{artifact.result.cosine:.2f}" if artifact else "–")
    return cells


def _first_two(results: Sequence[RunResult[FeaturesRun]]) -> PairOfRuns | None:
    runs = [result.run for result in results if result.state == "finished"]
    if len(runs) < 2 or runs[0].model.d_sae > LARGEST_MATCHED:
        return None
    return PairOfRuns(runs=(runs[0].id, runs[1].id))
