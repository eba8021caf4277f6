"""Retrieve the letter after a marker."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch, Task, line
from whence.tasks._shortcuts import counts_of


class Needle(Task):
    """Predict the letter after the marker, which is repeated at the end of the sequence.

    B A # C A D B C # → C

    All letters occur equally often (up to one, where their number does not divide the length), and each is equally
    likely to be the answer. Counts and fixed positions therefore predict no better than a random letter of the
    sequence.
    """

    skill = "Find the marker and recall the letter after it."
    expressed_by = frozenset({"bigrams", "trigrams"})
    per = "sequence"
    shortest = 4
    examples = (("letters=4", [1, 0, 4, 2, 0, 3, 1, 2, 4], [2]), ("letters=4", [4, 3, 1, 4], [3]))

    def __init__(
        self,
        *,
        letters: Annotated[int, Field(ge=2, le=2**16, description="number of letters")] = 16,
    ) -> None:
        self.letters = self.outputs = letters
        self.symbols = letters + 1  # and the marker

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        order = torch.rand(batch, length - 2, generator=generator).argsort(1)
        heap = (order + torch.randint(self.letters, (batch, 1), generator=generator)) % self.letters
        marked = torch.randint(length - 2, (batch, 1), generator=generator)
        places = line(length - 2)
        inputs = torch.full((batch, length), self.letters)  # markers, until the heap is put around one of them
        inputs.scatter_(1, places + (places >= marked), heap)
        answer = heap.gather(1, marked).squeeze(1)
        return Batch(inputs, line(length), answer, torch.ones(batch, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        return [inputs[inputs.index(self.letters) + 1]]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        inputs = batch.inputs
        return {
            "the commonest letter": counts_of(inputs, self.symbols)[:, : self.letters].argmax(1),
            "the latest letter": inputs[:, -2],
            "the first letter": torch.where(inputs[:, 0] == self.letters, inputs[:, 1], inputs[:, 0]),
            "the letter in the middle": inputs[:, inputs.shape[1] // 2],
            "the commonest of the four letters after the marker": self._after_marker(inputs),
        }

    def _after_marker(self, inputs: Tensor) -> Tensor:
        """Of the letters behind the marker, whatever their order, the commonest."""
        marked = (inputs == self.letters).long().argmax(1, keepdim=True)
        places = (marked + 1 + line(4)).clamp(max=inputs.shape[1] - 2)
        return counts_of(inputs.gather(1, places), self.symbols)[:, : self.letters].argmax(1)
