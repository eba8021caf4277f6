"""Parity of the number of ones."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.tasks import HOLD_COUNTS, Answer, Batch, Task, line


class Parity(Task):
    """Whether the number of ones is odd.

    1 0 1 1 → 1        1 0 1 0 → 0

    The answer depends on every bit and is independent of any proper part of the sequence. The positions of the ones do
    not matter: their exact number expresses the skill. An approximate number is a shortcut.
    """

    skill = "Count the ones exactly, modulo 2."
    expressed_by = HOLD_COUNTS | {"last symbol", "variety"}
    per = "sequence"
    shortest = 2
    symbols = outputs = 2
    examples = (("", [1, 0, 1, 1], [1]), ("", [1, 0, 1, 0], [0]))

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(2, (batch, length), generator=generator)
        return Batch(inputs, line(length), inputs.sum(1) % 2, torch.ones(batch, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        odd = False
        for bit in inputs:
            odd = odd != bool(bit)
        return [int(odd)]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        ones = batch.inputs.sum(1)
        recent = batch.inputs[:, -min(8, batch.inputs.shape[1] // 2) :]
        return {
            "the last bit": batch.inputs[:, -1],
            "the last bits, up to eight or half of all": (recent << line(recent.shape[1])).sum(1),
            "the number of ones, give or take one": ones // 2,
            **{f"the number of ones by threes, from {start} on": (ones - start + 3) // 3 for start in range(3)},
            "whether ones are more than half": (2 * ones > batch.inputs.shape[1]).long(),
            "whether ones are half of all, or more, or fewer": (ones - batch.inputs.shape[1] // 2).clamp(-1, 1),
        }
