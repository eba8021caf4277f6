"""Comparisons of sparse autoencoders at the same number of active features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import plotly.graph_objects as go

from whence import stats
from whence.config import Config
from whence.experiments.instrument import Instrument, Measurement
from whence.experiments.results import read_results
from whence.experiments.table import Cell, Column, Criterion, PlannedTable, Row, Table, over_seeds
from whence.features.config import ALL, PRESETS, FeaturesConfig, controlled_pairs
from whence.features.evals.measures import stability
from whence.features.figures import score_figures, strictness_section, style
from whence.features.run import FeaturesRun
from whence.features.stored import load
from whence.store.artifacts import ArtifactKind
from whence.store.runs import Store

L0_TOLERANCE = 0.05
"""Relative distance from the requested number of active features up to which a variant is compared"""
LARGEST_MATCHED = 4096
"""Features, above which matching the directions of two seeds would take longer than training them"""
LEGEND = (
    "FVU: fraction of variance unexplained. L0: active features per activation. dead: share never active. mask off: "
    "without the mask. position-specific: features of whose variance position explains at least half, mask off. "
    "position selectivity: that share, median over features. retention: correlation of mask value and mean activation "
    "by position, mask off; chance: with the masks of other features. free, bound recovered: cosine with the true "
    "directions. In brackets: 95 % over seeds"
)


class PairOfRuns(Config):
    """Two seeds of one variant."""

    runs: tuple[str, str]


class SeedStability(Config):
    """How alike the directions are that two seeds learn."""

    cosine: float


STABILITY = ArtifactKind("seed_stability", PairOfRuns, SeedStability)


@dataclass(frozen=True)
class Measure:
    """A column: its title, and how it is read from a run's metrics."""

    title: str
    read: Callable[[Mapping[str, Any]], float | None]
    digits: int = 3
    percent: bool = False
    detail: bool = False


MEASURES: dict[str, Measure] = {
    "fvu": Measure("FVU", lambda m: m["fvu"], 4),
    "l0": Measure("L0", lambda m: m["l0"], 1),
    "dead": Measure("dead", lambda m: m["dead"], 1, percent=True),
    "fvu_mask_off": Measure("FVU, mask off", lambda m: m["lifted"]["fvu"], 4),
    "l0_mask_off": Measure("L0, mask off", lambda m: m["lifted"]["l0"], 1, detail=True),
    "position_specific": Measure("position-specific", lambda m: m["lifted"]["fidelity"]["bound"], 1),
    "selectivity": Measure("position selectivity", lambda m: m["lifted"]["fidelity"]["median"], detail=True),
    "retention": Measure("retention", lambda m: m["lifted"].get("retention", {}).get("median")),
    "retention_chance": Measure("chance", lambda m: m["lifted"].get("retention", {}).get("chance"), detail=True),
    "free_recovered": Measure("free recovered", lambda m: m.get("recovery", {}).get("free", {}).get("matched")),
    "bound_recovered": Measure("bound recovered", lambda m: m.get("recovery", {}).get("bound", {}).get("matched")),
}


class Features(Instrument[FeaturesConfig, FeaturesRun]):
    name = "features"
    config = FeaturesConfig
    run = FeaturesRun
    presets = PRESETS

    def title(self, config: FeaturesConfig) -> str:
        presets = "all presets" if config.presets == (ALL,) else stats.count(len(config.presets), "preset")
        return f"{presets}: {config.title}, {stats.count(config.seeds, 'seed')}"

    def plan(self, config: FeaturesConfig, store: Store) -> list[PlannedTable[FeaturesRun]]:
        variants = config.runs()
        pairs = controlled_pairs({name: runs[0].model.sparsity.name for name, runs in variants.items()})
        held_out = next(iter(variants.values()))[0].data.build().held_out_name
        return [PlannedTable(config.title, variants, pairs, [Criterion(stats.FVU, "fvu")], held_out)]

    def rows(
        self, planned: PlannedTable[FeaturesRun], rows: Sequence[Row[FeaturesRun]], store: Store
    ) -> list[Row[FeaturesRun]]:
        return [replace(row, cells=_cells(row, store)) for row in rows]

    def columns(self, planned: PlannedTable[FeaturesRun], rows: Sequence[Row[FeaturesRun]]) -> list[Column]:
        """Those that some run has."""
        there = [key for key in MEASURES if any(row.cell(key).per_seed for row in rows)]
        return [
            *(Column(key, MEASURES[key].title, MEASURES[key].detail) for key in there),
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
        lines = [f"Not at the requested number of active features, and not compared: {named}."] if missed else []
        return [*table.lost, *lines, *stats.report(table.comparisons)]

    def measurements(self, planned: PlannedTable[FeaturesRun], store: Store) -> list[Measurement[Any, Any]]:
        """How alike the directions are that two seeds learn."""
        found = []
        for name, runs in planned.variants.items():
            pair = _first_two([result.run for result in read_results(runs, store) if result.state == "finished"])
            if pair:
                label = f"Matching features of two seeds: {name}"
                found.append(Measurement(STABILITY, _stability_request(pair), label, partial(_stability, store, pair)))
        return found

    def style(self, table: Table[FeaturesRun], name: str) -> Mapping[str, str]:
        return style(name)

    def figures(self, table: Table[FeaturesRun]) -> Mapping[str, go.Figure]:
        return score_figures(table)

    def sections(self, tables: Sequence[Table[FeaturesRun]], store: Store) -> Mapping[str, Sequence[str]]:
        return {table.title: strictness_section(table.rows) for table in tables}


FEATURES = Features()


def requested_l0(row: Row[FeaturesRun]) -> float:
    """Active features per activation; 0: no number was requested."""
    options = row.results[0].run.model.sparsity.options()
    return options.get("k") or options.get("l0", 0)


def at_requested_l0(row: Row[FeaturesRun]) -> bool:
    requested = requested_l0(row)
    return not requested or abs((row.cell("l0").mean or 0) / requested - 1) <= L0_TOLERANCE


def _cells(row: Row[FeaturesRun], store: Store) -> dict[str, Cell]:
    cells = {"parameters": Cell(f"{row.results[0].run.parameters():,}")}
    for key, measure in MEASURES.items():
        values = {r.run.seed: measure.read(r.metrics) for r in row.finished}
        known = {seed: float(value) for seed, value in values.items() if value is not None}
        scale, unit = (100.0, " %") if measure.percent else (1.0, "")
        cells[key] = over_seeds(known, measure.digits, scale=scale, unit=unit)
    pair = _first_two([result.run for result in row.finished])
    artifact = STABILITY.find(_stability_request(pair), store) if pair else None
    cells["stability"] = Cell(f"{artifact.result.cosine:.2f}" if artifact else "–")
    return cells


def _first_two(runs: Sequence[FeaturesRun]) -> tuple[FeaturesRun, FeaturesRun] | None:
    if len(runs) < 2 or runs[0].model.size > LARGEST_MATCHED:
        return None
    return runs[0], runs[1]


def _stability_request(runs: tuple[FeaturesRun, FeaturesRun]) -> PairOfRuns:
    return PairOfRuns(runs=(runs[0].id, runs[1].id))


def _stability(store: Store, runs: tuple[FeaturesRun, FeaturesRun]) -> SeedStability:
    one, other = (load(store, run.id)[0].directions.detach() for run in runs)
    return SeedStability(cosine=stability(one, other))
