"""Parity of the number of changes in a bit sequence."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from whence.tasks import COMPARE_ENDS, Answer, Batch, Task, line
from whence.tasks._shortcuts import count_of_last


class EvenPairs(Task):
    """Whether the number of adjacent bits that differ (01 or 10) is even.

    0 1 1 0 → 1 (01, 10)        0 1 0 0 1 → 0 (01, 10, 01)

    It is even exactly if the first bit equals the last. A model can compare the two ends or count all changes; the bits
    between give no other information. Exact counts of adjacent pairs express the comparison, because 01 and 10
    alternate. Shortcuts are counts of bits (the more frequent bit is more likely to be at both ends) and approximate
    counts of pairs.
    """

    skill = "Compare the first bit with the last, or count the changes between them exactly."
    expressed_by = COMPARE_ENDS
    per = "sequence"
    shortest = 3
    symbols = outputs = 2
    examples = (("", [0, 1, 1, 0], [1]), ("", [0, 1, 0, 0, 1], [0]))

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(2, (batch, length), generator=generator)
        same = (inputs[:, 0] == inputs[:, -1]).long()
        return Batch(inputs, line(length), same, torch.ones(batch, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        changes = [pair for pair in itertools.pairwise(inputs) if pair in ((0, 1), (1, 0))]
        return [int(len(changes) % 2 == 0)]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        inputs, length = batch.inputs, batch.inputs.shape[1]
        pairs = (inputs[:, 1:] != inputs[:, :-1]).sum(1)
        return {
            "the last two bits": 2 * inputs[:, -2] + inputs[:, -1],
            "the number of ones": inputs.sum(1),
            "the majority of the first three bits, and the last bit": 2 * (inputs[:, :3].sum(1) > 1) + inputs[:, -1],
            "how often the last bit occurred": count_of_last(inputs),
            "the number of such pairs, give or take one": pairs // 2,
            **{f"the number of such pairs by threes, from {start} on": (pairs - start + 3) // 3 for start in range(3)},
            "whether such pairs are half of all, or more, or fewer": (pairs - (length - 1) // 2).clamp(-1, 1),
        }
