"""Running sum modulo a base."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from whence.tasks.base import Batch, Task, line


class ModularSum(Task):
    """At every position, the sum of all previous numbers modulo a base.

    base 10:  inputs  3 1 4
              targets . 3 4      (position 0 has nothing before it and is not scored)
    """

    per = "token"
    shortest = 2

    def __init__(self, *, base: Annotated[int, Field(ge=2, description="sums are taken modulo this")] = 10) -> None:
        self.base = self.symbols = self.outputs = base

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(self.base, (batch, length), generator=generator)
        targets = (inputs.cumsum(1) - inputs) % self.base
        return Batch(inputs, line(length), targets, (line(length) >= 1).expand(batch, -1))

    def floors(self, length: int, first: int = 0) -> dict[str, float]:
        scored = length - max(first, 1)
        easy = 1 if first <= 1 else 0  # at position 1 the sum is the one number before it
        return {
            "uniform guess": 1 / self.base,
            "copy of the previous number": (easy + (scored - easy) / self.base) / scored,
        }
