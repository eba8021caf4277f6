"""Compare each symbol with the one k positions earlier."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch, Task, line
from whence.tasks._shortcuts import count_before


class KBack(Task):
    """At every position, whether the symbol equals the one k positions earlier.

    k = 2:  inputs  A B C B D B
            targets . . 0 1 0 1      (the first k positions are not scored)

    Half of all positions match. Most of the others repeat a symbol from another of the last k + 2 positions, so that a
    recent occurrence is weak evidence. Windows shorter than k, and counts that include one or two positions more, are
    shortcuts.
    """

    skill = "Compare the symbol with the one exactly k positions earlier."
    dense = True
    examples = (("k=2", [0, 1, 2, 1, 3, 1], [None, None, 0, 1, 0, 1]),)

    def __init__(
        self,
        *,
        k: Annotated[int, Field(ge=1, le=2**20, description="distance in positions")] = 3,
        symbols: Annotated[int, Field(ge=3, le=1000, description="number of symbols")] = 8,
    ) -> None:
        self.k, self.symbols, self.outputs, self.shortest = k, symbols, 2, k + 1
        self.shortcut_window = k - 1
        self.expressed_by = frozenset({1: {"bigrams", "trigrams"}, 2: {"skip-pairs", "trigrams"}}.get(k, ()))

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        k = self.k
        inputs = torch.randint(self.symbols, (length, batch), generator=generator)  # time first: rows are written whole
        match = torch.rand(length, batch, generator=generator) < 0.5
        step = torch.randint(1, self.symbols, (length, batch), generator=generator)
        lure = torch.randint(1, k + 2, (length, batch), generator=generator)
        lure += lure >= k  # one of the last k + 2 places, but not the one that is asked about
        tempting_at = (torch.arange(length)[:, None] - lure).clamp_(min=0) * batch + torch.arange(batch)
        # step by step, as each symbol depends on those before; through NumPy's view, whose small operations cost less
        symbols, flat, jump = inputs.numpy(), inputs.view(-1).numpy(), step.numpy()
        matched, tempting_place = match.numpy(), tempting_at.numpy()
        for place in range(k, length):
            asked, tempting = symbols[place - k], flat[tempting_place[place]]
            differs = np.where(tempting == asked, (asked + jump[place]) % self.symbols, tempting)
            symbols[place] = np.where(matched[place], asked, differs)
        inputs = inputs.T.contiguous()
        targets = torch.zeros_like(inputs)
        targets[:, k:] = inputs[:, k:] == inputs[:, :-k]
        return Batch(inputs, line(length), targets, (line(length) >= k).expand(batch, -1))

    def answer_keys(self, batch: Batch) -> Tensor:
        return (batch.positions - self.k).clamp(min=-1)

    def solve(self, inputs: list[int]) -> list[Answer]:
        return [
            int(symbol == inputs[place - self.k]) if place >= self.k else None for place, symbol in enumerate(inputs)
        ]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        k, inputs = self.k, batch.inputs
        windows = [k] * (k > 1) + [k + 1, k + 2, 2 * k]  # with k = 1, the last k places are the question itself
        nearer, about = count_before(inputs, k - 1), count_before(inputs, k + 2)
        return {
            "how often the symbol occurred before": count_before(inputs),
            **{f"how often in the last {window} places": count_before(inputs, window) for window in windows},
            "how often nearer than k, and from k to k + 2 places back": nearer * (k + 3) + about,
        }
