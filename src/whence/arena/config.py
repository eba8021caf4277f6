"""The configuration of a comparison: tasks × encodings × seeds, and the settings of a sweep."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BeforeValidator, Field

from whence.arena.run import ArenaRun, Lengths
from whence.arena.tuning import Key, apply, applying, parse_grid, setting_of, tuned_values, unfold
from whence.encodings import ENCODINGS
from whence.encodings.base import Encoding
from whence.errors import UserError
from whence.experiments.instrument import MOST_VARIANTS, ComparisonConfig
from whence.experiments.options import metavar
from whence.experiments.table import Family
from whence.models.sequence import Architecture, PositionConfig, supported_hooks
from whence.tasks import TASKS, TaskChoice
from whence.training.config import TrainingConfig

TUNING_SEED = 1_000_000
"""First seed used for tuning. No table reports this seed or later ones."""
USUAL_TASKS = ("modular_sum", "k_back_recall", "shift_invariant_pattern", "long_range_match")
USUAL_ENCODINGS = ("sinusoidal", "learned", "rope", "alibi")


def parse_position_config(value: Any) -> Any:
    """`"randomized:span=512+rope"` → transform and encoding."""
    if not isinstance(value, str):
        return value
    if value.startswith("+") or value.endswith("+"):
        raise ValueError(f"expected ENCODING or TRANSFORM+ENCODING, got {value!r}")
    parts = re.split(r"\+(?!\d)", value, maxsplit=1)  # not the plus sign in 1e+5
    return {"encoding": parts[-1], "positions": parts[0] if len(parts) == 2 else None}


Listed = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
"""In a config file, a single name is a list with one element."""


class ArenaConfig(ComparisonConfig):
    """Encodings, tasks and seeds of a comparison, with the model, the lengths and the training."""

    tasks: Annotated[tuple[TaskChoice, ...], Listed] = Field(
        default=tuple(map(TASKS.choose, USUAL_TASKS)),
        min_length=1,
        max_length=MOST_VARIANTS,
        description="tasks to train on (see 'whence tasks')",
    )
    encodings: Annotated[tuple[Annotated[PositionConfig, BeforeValidator(parse_position_config)], ...], Listed] = Field(
        default=(),
        max_length=MOST_VARIANTS,
        description="positional encodings to compare (see 'whence encodings'); a transform of positions is written in "
        f"front: randomized+rope. Default: those of {', '.join(USUAL_ENCODINGS)} that the mixer supports",
    )
    first_seed: int = Field(
        default=0, ge=0, lt=TUNING_SEED - 1000, description="first random seed; the others are consecutive"
    )
    sweep: str = Field(
        default="",
        max_length=10_000,
        description="train every combination of these values: 'd_model=64,128;k=1,3,7'",
        json_schema_extra=metavar("GRID"),
    )
    tune: str = Field(
        default="",
        max_length=10_000,
        description="choose among these values for every encoding, on validation data: 'lr=0.001,0.003'",
        json_schema_extra=metavar("GRID"),
    )
    tune_seeds: int = Field(
        default=2, ge=1, le=100, description="number of seeds used for tuning; they are neither reported nor tested"
    )
    against: str = Field(
        default="",
        description="compare every encoding with this one only, which needs fewer seeds; default: all pairs",
        json_schema_extra=metavar("ENCODING"),
    )
    family: Family = Field(
        default="table",
        description="comparisons over which the 5 % error is controlled: those of one table, or of all tables (sheet)",
    )
    model: Architecture = Architecture()
    lengths: Lengths = Lengths()
    training: TrainingConfig = TrainingConfig()

    @pydantic.model_validator(mode="after")
    def _default_encodings(self) -> ArenaConfig:
        if not self.encodings:
            object.__setattr__(self, "encodings", default_position_configs(self.model))
        swept, tuned = (dict(parse_grid(f, getattr(self, f), self.tasks)) for f in ("sweep", "tune"))
        if twice := set(swept) & set(tuned):
            raise UserError(f"tune: {min(twice)!r} is also in --sweep. Allowed: one of the two.")
        names = [str(position) for position in self.encodings]
        if self.against and self.against not in names:
            raise UserError(f"against: {self.against!r} is not among the encodings. Allowed: {', '.join(names)}.")
        return self

    @property
    def variants(self) -> int:
        return sum(self._settings("sweep", task) for task in self.tasks) * self._encoding_count

    @property
    def further_runs(self) -> int:
        settings = sum(self._settings("sweep", task) * self._settings("tune", task) for task in self.tasks)
        return self.tune_seeds * settings * self._encoding_count if self.tune else 0

    @property
    def _encoding_count(self) -> int:
        """Number of encodings, also before the defaults are filled in."""
        return len(self.encodings) or len(USUAL_ENCODINGS)

    def _settings(self, field: Literal["sweep", "tune"], task: TaskChoice) -> int:
        grid = applying(parse_grid(field, getattr(self, field), self.tasks), task)
        return math.prod(map(len, grid.values()))

    @property
    def error_family(self) -> Family:
        return self.family

    @property
    def tuned(self) -> tuple[str, ...]:
        return tuple(name for name, _ in parse_grid("tune", self.tune, self.tasks))

    def tuning_runs(self) -> list[ArenaRun]:
        """Runs of every setting that tuning tries, on tuning seeds."""
        if not self.tune:
            return []
        first = TUNING_SEED + self.first_seed
        return [run for _, runs in self._cells(range(first, first + self.tune_seeds)) for run in runs]

    def reported_runs(self, chosen: Mapping[Key, Mapping[str, Any]] | None = None) -> list[ArenaRun]:
        """The runs of the tables. Seeds vary slowest, so that an interrupted sweep is a comparison with fewer seeds.

        Args:
            chosen: values that tuning chose. Where they are not known yet, the first listed values are used.
        """
        chosen, tuned = chosen or {}, self.tuned
        return [
            next((run for run in runs if tuned_values(run, tuned) == chosen.get(key)), runs[0])
            for key, runs in self._cells(self.seed_range)
        ]

    def _cells(self, seeds: range) -> list[tuple[Key, list[ArenaRun]]]:
        """For every seed, table and encoding, one run for each setting of the tuned fields."""
        sweep, tune = (parse_grid(field, getattr(self, field), self.tasks) for field in ("sweep", "tune"))
        cells = []
        for seed, task in itertools.product(seeds, self.tasks):
            for setting, position in itertools.product(unfold(sweep, task), self.encodings):
                document = {
                    "task": task.model_dump(),
                    "seed": seed,
                    "model": self.model.with_position(position).model_dump(),
                    "lengths": self.lengths.model_dump(),
                    "training": self.training.model_dump(),
                }
                runs = [apply(setting | tuned, document) for tuned in unfold(tune, task)]
                cells.append(((setting_of(runs[0], self.tuned), str(position)), runs))
        return cells


def default_position_configs(model: Architecture) -> tuple[PositionConfig, ...]:
    """The default encodings that the mixer supports; `none` comes first where not all are supported."""

    def fits(encoding: type[Encoding]) -> bool:
        causal = model.attention == "causal" or not encoding.causal_only
        return causal and set(encoding.hooks()) <= supported_hooks(model.mixer.variant)

    usual = [name for name in USUAL_ENCODINGS if fits(ENCODINGS[name])]
    if len(usual) < len(USUAL_ENCODINGS):
        usual = ["none", *usual]
    return tuple(PositionConfig(encoding=ENCODINGS.choose(name)) for name in usual)
