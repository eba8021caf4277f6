"""Is the last symbol the first one? Which two are the same?"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import COMPARE_ENDS, Answer, Batch, Per, Task, line
from whence.tasks._shortcuts import count_of_last


class LongRangeMatch(Task):
    """Does the sequence end with the symbol it began with? Or (ask=location): where are the two that are alike?

    B A C B D B → 1        A B C B D B → 0        location:  A B . C X . Y Z B → 1 and 8

    The last symbol occurs equally often before the end whether or not it also comes first, so neither "it has been
    seen" nor any count over the whole sequence tells the answer. Counts of pairs do: a symbol that begins more pairs
    than it ends stands at the beginning, so they express the comparison of the two ends. How often the symbol occurs
    is spread evenly up to a third of the length, so that a count of one part, where one may be missing, tells little.

    For location, blanks separate symbols that are all different but for one pair.
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
            Literal["match", "location"], Field(description="first == last, or the places of a pair")
        ] = "match",
        symbols: Annotated[int, Field(ge=3, le=2**16, description="size of the alphabet")] = 16,
    ) -> None:
        self.ask, self.letters = ask, symbols
        self.symbols = symbols + (ask == "location")  # and a blank
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
