"""Predict the position of each token."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from whence.tasks import HOLD_COUNTS, Answer, Batch, Task, line


class OwnPosition(Task):
    """At every token, its position in the sequence. The tokens are random, so only position information helps.

    inputs  D A A C
    targets 0 1 2 3

    Counting the tokens so far is the skill. The number of distinct symbols so far and the count of the most frequent
    one are correlated with the position: these are shortcuts.

    There is no OOD evaluation, because positions beyond the training length are classes without examples.
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
        symbols: Annotated[int, Field(ge=1, le=2**16, description="number of symbols")] = 16,
        places: Annotated[int, Field(ge=2, le=2**20, description="maximum sequence length")] = 32,
    ) -> None:
        self.symbols, self.outputs = symbols, places
        self.longest = places

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(self.symbols, (batch, length), generator=generator)
        targets = line(length).expand(batch, -1)
        return Batch(inputs, line(length), targets, torch.ones_like(targets, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        return list(range(len(inputs)))
