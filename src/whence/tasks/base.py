"""What a task is: a recipe for batches, with the positions in them, and the scores that need no skill.

A task is made of whole batches drawn from a generator, so that equal seeds give equal data to every model.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from whence.registry import Variant


@dataclass(frozen=True)
class Batch:
    """What a model sees and what it should answer. Positions are data like everything else."""

    inputs: Tensor
    """(batch, length) integers."""
    positions: Tensor
    """(1, length): shared by all rows."""
    targets: Tensor
    """A class per answer, (batch, length) or (batch,); for regression floats, with one more axis of `outputs`."""
    scored: Tensor
    """bool, (batch, length) or (batch,): where an answer counts."""

    def to(self, device: torch.device) -> Batch:
        return Batch(*(t.to(device) for t in (self.inputs, self.positions, self.targets, self.scored)))


class Task(Variant, abc.ABC):
    """One file, one task. `symbols` inputs are possible, `outputs` answers."""

    per: ClassVar[Literal["token", "sequence"]]
    goal: ClassVar[Literal["classification", "regression"]] = "classification"
    shortest: int = 1
    """The shortest sequence the task is defined on."""
    symbols: int
    outputs: int

    @abc.abstractmethod
    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        """Independent sequences of one length."""

    @abc.abstractmethod
    def floors(self, length: int, first: int = 0) -> dict[str, float]:
        """What each named shortcut scores, without the skill in question, on positions from `first` on."""

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """bool, like `scored`: is this answer right?"""
        return outputs.argmax(-1) == targets


def line(length: int) -> Tensor:
    """The positions 0 … length−1 of a plain sequence, shape (1, length)."""
    return torch.arange(length)[None]
