"""Grids such as `d_model=64,128;k=1,3,7`, and the choice of hyperparameters for each encoding.

Hyperparameters are chosen on validation data of seeds that no table reports.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whence import stats
from whence.arena.metrics import PARTS
from whence.arena.run import ArenaRun, Lengths
from whence.errors import UserError, not_allowed
from whence.experiments.results import final_metrics, read_results
from whence.experiments.table import PlannedTable
from whence.models.sequence import Architecture
from whence.registry import Choice
from whence.store.files import canonical
from whence.store.runs import Store
from whence.tasks import Task
from whence.training.config import TrainingConfig

Grid = list[tuple[str, list[str]]]
TUNABLE = ("lr", "schedule", "warmup", "weight_decay", "clip", "dropout")
CONFIG_GROUPS = {"model": Architecture, "lengths": Lengths, "training": TrainingConfig}
Key = tuple[str, str]
"""(setting of the table, encoding)"""


@dataclass(frozen=True)
class Trial:
    """One setting of the tuned fields, over the tuning seeds."""

    values: Mapping[str, Any]
    seeds: int
    validation: float
    """Mean accuracy on validation data, by which settings are chosen"""
    loss: float
    accuracy: Mapping[str, float]
    """By part, on test data of the tuning seeds. Reported with the choice, never used for it"""

    @property
    def text(self) -> str:
        return text_of(self.values)


def text_of(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def setting_of(run: ArenaRun, tuned: Sequence[str] = ()) -> str:
    """The fields that runs of one table share: all but the seed, the encoding and tuned fields."""
    return canonical(shared_fields(run, tuned))


def shared_fields(run: ArenaRun, tuned: Sequence[str]) -> dict[str, Any]:
    document = run.document()
    del document["seed"], document["model"]["encoding"], document["model"]["positions"]
    for name in tuned:
        del document[group_of(name)][name]
    return document


def tuned_values(run: ArenaRun, tuned: Sequence[str]) -> dict[str, Any]:
    document = run.document()
    return {name: document[group_of(name)][name] for name in tuned}


def trials(runs: Sequence[ArenaRun], store: Store, tuned: Sequence[str]) -> dict[Key, list[Trial]]:
    """Results of the finished tuning runs, for each table and encoding."""
    grouped: dict[Key, dict[str, list[ArenaRun]]] = {}
    for run in runs:
        key = setting_of(run, tuned), run.model.position_label
        grouped.setdefault(key, {}).setdefault(canonical(tuned_values(run, tuned)), []).append(run)
    return {
        key: [trial for members in settings.values() if (trial := _trial(members, store, tuned))]
        for key, settings in grouped.items()
    }


def _trial(runs: Sequence[ArenaRun], store: Store, tuned: Sequence[str]) -> Trial | None:
    finished = [final_metrics(result) for result in read_results(runs, store) if result.state == "finished"]
    validation = [metrics.validation for metrics in finished if metrics.validation]
    if not validation:
        return None
    by_part = {part: [counts for metrics in finished if (counts := metrics.part(part))] for part in PARTS}
    return Trial(
        tuned_values(runs[0], tuned),
        len(finished),
        stats.mean([counts.accuracy for counts in validation]),
        stats.mean([counts.loss for counts in validation]),
        {part: stats.mean([counts.accuracy for counts in of]) for part, of in by_part.items() if of},
    )


@dataclass(frozen=True)
class ArenaTable(PlannedTable[ArenaRun]):
    """One task in one setting."""

    tuned: tuple[str, ...] = ()
    """Fields that are tuned for every encoding"""
    tried: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    """By encoding, the settings that tuning tried"""

    def chosen(self, encoding: str) -> dict[str, Any]:
        return tuned_values(self.variants[encoding][0], self.tuned)


def choose(tried: Mapping[Key, Sequence[Trial]]) -> dict[Key, Mapping[str, Any]]:
    """For each encoding the setting with the highest validation accuracy; among equals, with the lowest loss.

    Settings with fewer finished seeds are not preferred to settings with more.
    """
    return {
        key: max(those, key=lambda trial: (trial.seeds, trial.validation, -trial.loss)).values
        for key, those in tried.items()
        if those
    }


def parse_grid(field: str, text: str, tasks: Sequence[Choice[Task]]) -> Grid:
    """Parse a grid such as `lr=0.001,0.003;clip=1`.

    Only fields of the training can be tuned: a comparison of models of different sizes, or trained for different
    numbers of steps, would not be fair.
    """
    options = {option for task in tasks for option in task.options()}
    known = [name for spec in CONFIG_GROUPS.values() for name in spec.model_fields] + sorted(options)
    if field == "tune":
        known = list(TUNABLE)
    grid: Grid = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, values = (piece.strip() for piece in part.partition("="))
        listed = [value.strip() for value in values.split(",")]
        if len(set(listed)) != len(listed):
            raise UserError(f"{field}: {part!r} lists a value twice. Allowed: each value once.")
        if not equals or "" in listed:
            raise UserError(f"{field}: {part!r} is not valid. Allowed: FIELD=VALUE,VALUE;FIELD=VALUE,…")
        if name not in known:
            raise not_allowed(field, name, known)
        if name in dict(grid):
            raise UserError(f"{field}: {name!r} is listed twice. Allowed: each field once.")
        grid.append((name, listed))
    return grid


def group_of(name: str) -> str:
    """The part of a run that a field belongs to: `model`, `lengths`, `training`, or `task` for options of a task."""
    return next((group for group, spec in CONFIG_GROUPS.items() if name in spec.model_fields), "task")


def unfold(grid: Grid, task: Choice[Task]) -> Iterator[dict[str, str]]:
    """Every setting of the grid, without options that this task does not have."""
    applies = applying(grid, task)
    for values in itertools.product(*applies.values()):
        yield dict(zip(applies, values, strict=True))


def applying(grid: Grid, task: Choice[Task]) -> dict[str, list[str]]:
    """The grid without options that this task does not have."""
    return {name: values for name, values in grid if group_of(name) != "task" or name in task.options()}


def apply(setting: dict[str, str], run: dict[str, Any]) -> ArenaRun:
    """The run with the setting applied."""
    document = {key: dict(value) if isinstance(value, dict) else value for key, value in run.items()}
    for name, value in setting.items():
        document[group_of(name)][name] = None if value == "none" else value
    return ArenaRun.read(document)
