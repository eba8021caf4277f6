"""Running sum modulo a base."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import HOLD_COUNTS, Answer, Batch, Task, line


class ModularSum(Task):
    """At every position, the sum of all previous numbers modulo a base.

    base 10:  inputs  3 1 4
              targets . 3 4      (position 0 is not scored)

    Order does not matter: exact counts of the numbers so far express the skill. Sums of the latest numbers alone are
    shortcuts; they are correct where the earlier numbers sum to a multiple of the base.
    """

    skill = "Add up all previous numbers modulo the base."
    expressed_by = HOLD_COUNTS
    dense = True
    shortest = 2
    examples = (("", [3, 1, 4], [None, 3, 4]), ("base=5", [4, 4, 4, 0], [None, 4, 3, 2]))

    def __init__(self, *, base: Annotated[int, Field(ge=2, le=1000, description="modulus of the sums")] = 10) -> None:
        self.base = self.symbols = self.outputs = base

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(self.base, (batch, length), generator=generator)
        targets = (inputs.cumsum(1) - inputs) % self.base
        return Batch(inputs, line(length), targets, (line(length) >= 1).expand(batch, -1))

    def solve(self, inputs: list[int]) -> list[Answer]:
        return [sum(inputs[:place]) % self.base if place else None for place in range(len(inputs))]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        previous = batch.inputs.roll(1, 1)
        return {"copy of the previous number": previous + self.base * (batch.positions == 1)}
