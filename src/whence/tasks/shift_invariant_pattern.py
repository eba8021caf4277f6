"""Find a pattern wherever it stands."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks.base import Answer, Batch, Per, Task, line


class ShiftInvariantPattern(Task):
    """Do the pattern's symbols stand side by side, in order, anywhere? Or (ask=location): where does it end?

    pattern A B C:  X A B C Y A Z C B → 1 (location: 3)        X A Y B C X B A C → 0

    Every sequence holds the pattern's symbols twice: once side by side, once with gaps, on different sides of a cut.
    In one of the two groups they are in order, in the other they are not. The answer is whether it is the dense
    group that is in order. So the symbols, how they are spread, and how often A stands somewhere before B are alike
    under both answers: only order and adjacency together tell. Location is asked of sequences that hold the pattern.
    """

    per: Per = "sequence"
    examples = (
        ("", [3, 0, 1, 2, 4, 0, 5, 2, 1], [1]),
        ("", [3, 0, 4, 1, 2, 3, 1, 0, 2], [0]),
        ("ask=location", [3, 0, 1, 2, 4, 0, 5, 2, 1], [3]),
    )

    def __init__(
        self,
        *,
        ask: Annotated[
            Literal["detection", "location"], Field(description="is the pattern there, or where does it end")
        ] = "detection",
        pattern: Annotated[int, Field(ge=2, le=6, description="symbols in the pattern")] = 3,
        slack: Annotated[int, Field(ge=1, description="gaps in the group that is not dense: 1 to this many")] = 2,
        others: Annotated[int, Field(ge=1, description="symbols that fill the rest")] = 12,
    ) -> None:
        self.ask, self.pattern, self.slack, self.others = ask, pattern, slack, others
        self.symbols = pattern + others
        self.shortest = 2 * pattern + slack
        self.per, self.outputs = ("sequence", 2) if ask == "detection" else ("place", 1)

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        size = self.pattern
        inputs = torch.randint(size, self.symbols, (batch, length), generator=generator)
        answer = torch.randint(2, (batch,), generator=generator)
        if self.ask == "location":
            answer = torch.ones_like(answer)

        def draw(limit: Tensor) -> Tensor:
            """Integers from 0 to limit, inclusive."""
            return (torch.rand(batch, generator=generator) * (limit + 1)).long().minimum(limit)

        # where things stand is drawn without regard to the answer
        gaps = 1 + draw(torch.full((batch,), self.slack - 1))
        loose_width = size + gaps
        dense_first = torch.rand(batch, generator=generator) < 0.5
        free = length - size - loose_width
        before = draw(free)
        between = draw(free - before)
        dense_start = torch.where(dense_first, before, before + loose_width + between)
        loose_start = torch.where(dense_first, before + size + between, before)
        dense = dense_start[:, None] + torch.arange(size)
        # the loose group begins and ends at the edges of its span and leaves `gaps` of the inner places out
        rank = torch.rand(batch, size + self.slack, generator=generator)
        inner = torch.arange(size + self.slack)[None]
        rank = torch.where((inner == 0) | (inner == loose_width[:, None] - 1), -1.0, rank)
        rank = torch.where(inner >= loose_width[:, None], 2.0, rank)
        loose = loose_start[:, None] + rank.argsort(1)[:, :size].sort(1).values

        order = torch.arange(size).expand(batch, -1)
        shuffles = torch.tensor(list(itertools.permutations(range(size)))[1:])  # all but the pattern itself
        shuffled = shuffles[torch.randint(math.factorial(size) - 1, (batch,), generator=generator)]
        in_order = answer[:, None] == 1
        inputs.scatter_(1, dense, torch.where(in_order, order, shuffled))
        inputs.scatter_(1, loose, torch.where(in_order, shuffled, order))
        if self.ask == "location":
            ends = dense[:, -1:]
            return Batch(inputs, line(length), ends, torch.ones_like(ends, dtype=torch.bool))
        return Batch(inputs, line(length), answer, torch.ones(batch, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        wanted = list(range(self.pattern))
        starts = range(len(inputs) - self.pattern + 1)
        ends = [s + self.pattern - 1 for s in starts if inputs[s : s + self.pattern] == wanted]
        return [int(bool(ends))] if self.ask == "detection" else list(ends)

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        inputs, places = batch.inputs, line(batch.inputs.shape[1])
        first, last = inputs == 0, inputs == self.pattern - 1
        if self.ask == "location":
            return {
                "the last symbol's later place": torch.where(last, places, -1).amax(1, keepdim=True),
                "the last symbol's earlier place": torch.where(last, places, len(places[0])).amin(1, keepdim=True),
            }
        return {
            "symbols at the end of the sequence": inputs[:, -1],
            "the first symbol somewhere before the last": (first.cumsum(1) * last).sum(1),
        }
