"""Recall the symbol k positions earlier."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch, Task, line
from whence.tasks._shortcuts import commonest_so_far


class KBackRecall(Task):
    """At every position, predict the symbol k positions earlier.

    k = 2:  inputs  A B C B D B
            targets . . A B C B      (the first k positions are not scored)

    Counts of pairs of symbols k positions apart express the skill; windows shorter than k are shortcuts.
    """

    skill = "Recall the symbol exactly k positions earlier."
    dense = True
    examples = (("k=2", [0, 1, 2, 1, 3, 1], [None, None, 0, 1, 2, 1]),)

    def __init__(
        self,
        *,
        k: Annotated[int, Field(ge=1, le=2**20, description="distance in positions")] = 3,
        symbols: Annotated[int, Field(ge=2, le=1000, description="number of symbols")] = 16,
    ) -> None:
        self.k, self.symbols, self.outputs, self.shortest = k, symbols, symbols, k + 1
        self.shortcut_window = k - 1
        self.expressed_by = frozenset({1: {"bigrams", "trigrams"}, 2: {"skip-pairs", "trigrams"}}.get(k, ()))

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(self.symbols, (batch, length), generator=generator)
        targets = torch.zeros_like(inputs)
        targets[:, self.k :] = inputs[:, : -self.k]
        scored = line(length) >= self.k
        return Batch(inputs, line(length), targets, scored.expand(batch, -1))

    def answer_keys(self, batch: Batch) -> Tensor:
        return (batch.positions - self.k).clamp(min=-1)

    def solve(self, inputs: list[int]) -> list[Answer]:
        return [inputs[place - self.k] if place >= self.k else None for place in range(len(inputs))]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        names = {"most frequent symbol so far": commonest_so_far(batch.inputs, self.symbols)}
        if self.k > 1:  # with k = 1, the last k symbols are the answer
            names[f"the commonest of the last {self.k}"] = commonest_so_far(batch.inputs, self.symbols, self.k)
        return names
