"""Say where you are."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from whence.tasks.base import Answer, Batch, Task, line


class OwnPosition(Task):
    """At every token, its place in the sequence. What stands there says nothing: only position can tell.

    inputs  D A A C
    targets 0 1 2 3

    There is nothing to score beyond training: places that never occurred have no name.
    """

    shortest = 2
    dense = True
    stretch = ()
    examples = (("", [3, 0, 0, 2], [0, 1, 2, 3]),)

    def __init__(
        self,
        *,
        symbols: Annotated[int, Field(ge=1, description="size of the alphabet")] = 16,
        places: Annotated[int, Field(ge=2, description="longest sequence")] = 32,
    ) -> None:
        self.symbols, self.outputs = symbols, places
        self.longest = places

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(self.symbols, (batch, length), generator=generator)
        targets = line(length).expand(batch, -1)
        return Batch(inputs, line(length), targets, torch.ones_like(targets, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        return list(range(len(inputs)))
