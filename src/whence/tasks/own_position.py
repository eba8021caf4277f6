"""Say where you are."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from whence.tasks import HOLD_COUNTS, Answer, Batch, Task, line


class OwnPosition(Task):
    """At every token, its place in the sequence. What stands there says nothing: only position can tell.

    inputs  D A A C
    targets 0 1 2 3

    Counting the tokens so far is the skill. How many distinct symbols have occurred, and how often the most frequent
    one, tell something about the place without counting tokens: these are shortcuts.

    There is nothing to score beyond training: places that never occurred have no name.
    """

    skill = "Recover the position of a token, or count the tokens before it."
    expressed_by = HOLD_COUNTS | {"position", "one-hots", "centroids", "last symbol"}
    shortest = 2
    dense = True
    stretch = ()
    examples = (("", [3, 0, 0, 2], [0, 1, 2, 3]),)

    def __init__(
        self,
        *,
        symbols: Annotated[int, Field(ge=1, le=2**16, description="size of the alphabet")] = 16,
        places: Annotated[int, Field(ge=2, le=2**20, description="longest sequence")] = 32,
    ) -> None:
        self.symbols, self.outputs = symbols, places
        self.longest = places

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(self.symbols, (batch, length), generator=generator)
        targets = line(length).expand(batch, -1)
        return Batch(inputs, line(length), targets, torch.ones_like(targets, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        return list(range(len(inputs)))
