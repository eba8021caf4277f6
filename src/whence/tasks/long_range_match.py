"""Compare the two ends of a sequence, or locate a pair of equal symbols."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import COMPARE_ENDS, Answer, Batch, Per, Task, line
from whence.tasks._shortcuts import count_of_last


class LongRangeMatch(Task):
    """Whether the first symbol equals the last; with ask=location, the positions of the two equal symbols.

    B A C B D B → 1        A B C B D B → 0        location:  A B . C X . Y Z B → 1 and 8

    The last symbol occurs equally often before the end in both classes, so neither its earlier occurrence nor any count
    over the whole sequence predicts the answer. Counts of pairs do: a symbol that begins more pairs than it ends is the
    first, so they express the comparison of the two ends. The number of occurrences is uniform up to a third of the
    length, so that counts over a part of the sequence are weak evidence.

    For location, blanks separate symbols, of which exactly two are equal.
    """

    per: Per = "sequence"
    shortest = 4
    examples = (
        ("", [1, 0, 2, 1, 3, 1], [1]),
        ("", [0, 1, 2, 1, 3, 1], [0]),
        ("ask=location,symbols=6", [0, 1, 6, 2, 3, 6, 4, 5, 1], [1, 8]),
    )

    def __init__(
        self,
        *,
        ask: Annotated[
            Literal["match", "location"], Field(description="match: first == last; location: positions of the pair")
        ] = "match",
        symbols: Annotated[int, Field(ge=3, le=2**16, description="number of symbols")] = 16,
    ) -> None:
        self.ask, self.letters = ask, symbols
        self.symbols = symbols + (ask == "location")  # plus a blank
        self.per, self.outputs = ("sequence", 2) if ask == "match" else ("place", 2)
        self.skill = (
            "Compare the first symbol with the last." if ask == "match" else "Find the only symbol that occurs twice."
        )
        self.expressed_by = COMPARE_ENDS if ask == "match" else frozenset({"repeats"})

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        return (self._match if self.ask == "match" else self._pair)(generator, batch, length)

    def _match(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        last = torch.randint(self.symbols, (batch, 1), generator=generator)
        others = torch.randint(1, self.symbols, (batch, length), generator=generator)
        inputs = (last + others) % self.symbols  # nowhere the last symbol
        answer = torch.randint(2, (batch,), generator=generator)
        occurrences = torch.randint(1, max(2, length // 3) + 1, (batch,), generator=generator)
        in_the_middle = (occurrences - answer)[:, None]
        rank = torch.rand(batch, length - 2, generator=generator).argsort(1).argsort(1)
        inputs[:, 1:-1] = torch.where(rank < in_the_middle, last, inputs[:, 1:-1])
        inputs[:, :1] = torch.where(answer[:, None] == 1, last, inputs[:, :1])
        inputs[:, -1:] = last
        return Batch(inputs, line(length), answer, torch.ones(batch, dtype=torch.bool))

    def _pair(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        shown = self._shown(length)
        letters = torch.rand(batch, self.letters, generator=generator).argsort(1)[:, :shown]
        places = torch.rand(batch, length, generator=generator).argsort(1)[:, : shown + 1]
        inputs = torch.full((batch, length), self.letters)
        inputs.scatter_(1, places, torch.cat([letters, letters[:, :1]], 1))
        pair = places[:, [0, -1]].sort(1).values
        return Batch(inputs, line(length), pair, torch.ones(batch, 2, dtype=torch.bool))

    def _shown(self, length: int) -> int:
        return min(self.letters, max(2, length // 2))

    def solve(self, inputs: list[int]) -> list[Answer]:
        if self.ask == "match":
            return [int(inputs[0] == inputs[-1])]
        second = next(i for i, s in enumerate(inputs) if s != self.letters and s in inputs[:i])
        return [inputs.index(inputs[second]), second]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        inputs, length = batch.inputs, batch.inputs.shape[1]
        if self.ask == "location":
            place = torch.where(inputs != self.letters, line(length), -1)
            first = torch.where(place >= 0, place, length).amin(1)
            return {"the first and the last symbol": torch.stack([first, place.amax(1)], 1)}
        whole, recent = count_of_last(inputs), count_of_last(inputs, length // 2)
        return {
            "the last symbol occurred earlier": (whole > 0).long(),
            "how often it occurred": whole,
            "how often it occurred in the recent half": recent,
            "how often it occurred in either half": whole * length + recent,
            "how often it occurred in the middle": count_of_last(inputs, length - 2),
            **{
                f"the last symbol is among the first {first}": (inputs[:, :first] == inputs[:, -1:]).any(1).long()
                for first in (4, 8)
                if first < length - 1
            },
        }
