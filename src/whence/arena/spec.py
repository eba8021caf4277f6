"""A comparison: tasks × encodings × seeds, unfolded into runs."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from whence.arena.run import Lengths, Run
from whence.encodings import ENCODINGS
from whence.errors import UserError
from whence.models.sequence import Architecture, Contender
from whence.runs.spec import Training
from whence.spec import Spec
from whence.tasks import TASKS, TaskChoice


def parse_contender(value: Any) -> Any:
    """`"randomized:span=512+rope"` → transform and encoding."""
    if not isinstance(value, str):
        return value
    if value.startswith("+") or value.endswith("+"):
        raise ValueError(f"{value!r}: write TRANSFORM+ENCODING, or the encoding alone")
    parts = re.split(r"\+(?!\d)", value, maxsplit=1)  # not the plus sign of a number: 1e+5
    return {"encoding": parts[-1], "positions": parts[0] if len(parts) == 2 else None}


Listed = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
"""In a config file, one name may stand for a list of one."""


class ArenaSpec(Spec):
    """Which encodings to compare, on which tasks, over how many seeds."""

    tasks: Annotated[tuple[TaskChoice, ...], Listed] = Field(
        default=tuple(TASKS.preferred("k_back_recall")), min_length=1, description="what to learn (see 'whence tasks')"
    )
    encodings: Annotated[tuple[Annotated[Contender, BeforeValidator(parse_contender)], ...], Listed] = Field(
        default=tuple(Contender(encoding=e) for e in ENCODINGS.preferred("rope", "alibi", "learned", "none")),
        min_length=1,
        description="contenders (see 'whence encodings'); a transform of positions goes in front: randomized+rope",
    )
    seeds: int = Field(default=3, ge=1, le=1000, description="paired seeds; below 6 a table is headed exploratory")
    model: Architecture = Architecture()
    lengths: Lengths = Lengths()
    training: Training = Training()

    def plan(self) -> list[Run]:
        """Every run, checked. Seeds vary slowest, so that an interrupted sweep is still a comparison."""
        runs = [
            Run(
                task=task,
                seed=seed,
                model=self.model.with_contender(entrant),
                lengths=self.lengths,
                training=self.training,
            )
            for seed in range(self.seeds)
            for task in self.tasks
            for entrant in self.encodings
        ]
        for run in runs[: len(self.tasks) * len(self.encodings)]:
            run.check()
        if len({run.id for run in runs}) != len(runs):
            raise UserError(
                "encodings: the same task or encoding is listed twice. Allowed: each once.", field="encodings"
            )
        return runs
