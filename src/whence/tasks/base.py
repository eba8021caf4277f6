"""What a task is: a recipe for batches, with the positions in them, the truth about them, and what needs no skill.

A task is made of whole batches drawn from a generator, so that equal seeds give equal data to every model.
"""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from whence.registry import Variant
from whence.tasks._floors import best_guess

Per = Literal["token", "sequence", "place"]
Answer = int | float | None
FLOOR_TOKENS = 2**18
"""How much data a floor is measured on: enough for a point or so, drawn in a fraction of a second."""


@dataclass(frozen=True)
class Batch:
    """What a model sees and what it should answer. Positions are data like everything else."""

    inputs: Tensor
    """(batch, tokens) integers."""
    positions: Tensor
    """(1, tokens): shared by all rows."""
    targets: Tensor
    """What is right, in the shape of `scored`; for regression floats, with one more axis of `outputs`."""
    scored: Tensor
    """bool, where an answer counts: (batch, tokens) per token, (batch,) per sequence, (batch, outputs) per place."""
    prompt: int = 0
    """How many tokens in front are given at once; a model with prefix attention may look ahead within them."""

    def to(self, device: torch.device) -> Batch:
        tensors = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "prompt"}
        return replace(self, **tensors)


class Task(Variant, abc.ABC):
    """One file, one task. `symbols` kinds of input, `outputs` kinds of answer (per place: so many places to name)."""

    per: Per = "token"
    """An answer for every token, one for the sequence, or places in it (as many as `outputs`)."""
    goal: ClassVar[Literal["classification", "regression"]] = "classification"
    ranked: ClassVar[bool] = True
    """Whether results on this task may rank models. False if a predictor without the skill is known to solve it."""
    version: ClassVar[int] = 1
    """Version of the generator. Raise it when the data that a seed gives change."""
    dense: ClassVar[bool] = False
    """Every beginning of a sequence is a problem of its own: training at full length covers the shorter ones, and
    beyond training only the later positions count."""
    feeds_answers: bool = False
    """Earlier answers are among the inputs, one place late, as a language model sees them: no looking ahead."""
    shortest: int = 1
    longest: int | None = None
    train_length: ClassVar[int] = 32
    stretch: ClassVar[tuple[int, ...]] = (2, 4)
    """Lengths beyond training, as multiples of the training length, unless the user names others."""
    examples: ClassVar[tuple[tuple[str, list[int], list[Answer]], ...]] = ()
    """Worked by hand: (options as a user writes them, inputs, what `solve` must say)."""
    symbols: int
    outputs: int

    @abc.abstractmethod
    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        """Independent sequences of one length."""

    @abc.abstractmethod
    def solve(self, inputs: list[int]) -> list[Answer]:
        """The answers to one sequence, from the inputs alone, in plain Python: the truth that labels are held to.

        One per token (None where none is asked), or one, or one per place.
        """

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        """What a predictor without the skill in question may go by: integers in the shape of `scored`, by name."""
        return {}

    def tokens(self, length: int) -> int:
        """How many tokens a problem of this length takes."""
        return length

    def lengths_beyond(self, train_length: int) -> tuple[int, ...]:
        return tuple(factor * train_length for factor in self.stretch)

    def counted(self, batch: Batch, first: int) -> Tensor:
        """`scored`, without what lies before position `first` in a task that is asked at every position."""
        return batch.scored & (batch.positions >= first) if self.dense and self.per == "token" else batch.scored

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """bool, like `scored`: is this answer right?"""
        return outputs.argmax(-1) == targets

    def floors(self, length: int, first: int = 0) -> dict[str, float]:
        """What the best use of each shortcut alone scores on answers from position `first` on. Measured, once."""
        return dict(_measured_floors(self, length, first))

    def floors_by_position(self, length: int) -> dict[int, float]:
        """The highest floor at each position that is scored, for tasks with an answer per token. Measured, once."""
        return dict(_measured_by_position(self, length))

    def certain_floors(self, length: int) -> dict[str, float]:
        """Floors that are known without measuring."""
        chances = self.tokens(length) if self.per == "place" else self.outputs
        return {"uniform guess": 1 / chances}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))


@functools.lru_cache(maxsize=1024)
def _measured_floors(task: Task, length: int, first: int) -> dict[str, float]:
    batch, features = _drawn(task, length)
    counted = task.counted(batch, first)
    row = torch.arange(len(counted)).reshape(-1, *[1] * (counted.ndim - 1)).expand_as(counted)[counted]
    measured = {
        name: best_guess(feature[counted], batch.targets[counted], row % 2 == 0) for name, feature in features.items()
    }
    return task.certain_floors(length) | measured


@functools.lru_cache(maxsize=256)
def _measured_by_position(task: Task, length: int) -> dict[int, float]:
    batch, features = _drawn(task, length)
    learn = torch.arange(len(batch.inputs)) % 2 == 0
    certain = max(task.certain_floors(length).values())
    return {
        place: max(certain, *(best_guess(f[:, place], batch.targets[:, place], learn) for f in features.values()))
        for place in batch.scored.all(0).nonzero().flatten().tolist()
    }


def _drawn(task: Task, length: int) -> tuple[Batch, dict[str, Tensor]]:
    """Sequences to measure floors on, and the features of their shortcuts."""
    if task.per == "token":
        sequences = max(64, FLOOR_TOKENS // task.tokens(length))
    else:  # one answer per sequence, or a few: many sequences, as far as memory goes
        sequences = max(512, min(16 * FLOOR_TOKENS // task.tokens(length), 16384))
    batch = task.sample(torch.Generator().manual_seed(0), sequences, length)
    return batch, {"the commonest answer": torch.zeros_like(batch.targets), **task.shortcuts(batch)}


def line(length: int) -> Tensor:
    """The positions 0 … length−1 of a plain sequence, shape (1, length)."""
    return torch.arange(length)[None]
