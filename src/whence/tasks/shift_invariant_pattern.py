"""Find a pattern wherever it stands."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks.base import Answer, Batch, Per, Task, line


class ShiftInvariantPattern(Task):
    """Do the pattern's symbols stand side by side, in order, anywhere? Or (ask=location): where does it end?

    pattern A B C:  X A B C Y C Z B A → 1 (location: 3)        X A Y B C X C B A → 0

    Every sequence holds the pattern's symbols twice: once side by side, once with gaps. One of the two groups is in
    order, the other backwards. The answer is whether it is the dense group that is in order. So the symbols, who stands
    beside whom, and how often A stands somewhere before B are alike under both answers: only order and adjacency
    together tell. (Who sees them in one pair of neighbours alone is right four times in five.)

    Location is asked of sequences that hold the pattern, a dense group backwards, and one in order with gaps.
    """

    per: Per = "sequence"
    examples = (
        ("", [3, 0, 1, 2, 4, 2, 5, 1, 0], [1]),
        ("", [3, 0, 4, 1, 2, 3, 2, 1, 0], [0]),
        ("ask=location", [3, 0, 1, 2, 4, 2, 1, 0, 5, 0, 3, 1, 2], [3]),
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
        self.shortest = (2 if ask == "detection" else 3) * pattern + slack
        self.per, self.outputs = ("sequence", 2) if ask == "detection" else ("place", 1)

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        inputs = torch.randint(self.pattern, self.symbols, (batch, length), generator=generator)
        if self.ask == "location":
            dense, backwards, loose = self._places(generator, batch, length, (False, False, True))
            self._write(inputs, dense, forwards=True)
            self._write(inputs, backwards, forwards=False)
            self._write(inputs, loose, forwards=True)
            ends = dense[:, -1:]
            return Batch(inputs, line(length), ends, torch.ones_like(ends, dtype=torch.bool))
        answer = torch.randint(2, (batch,), generator=generator)
        dense, loose = self._places(generator, batch, length, (False, True))
        self._write(inputs, dense, forwards=answer[:, None] == 1)
        self._write(inputs, loose, forwards=answer[:, None] == 0)
        return Batch(inputs, line(length), answer, torch.ones(batch, dtype=torch.bool))

    def _write(self, inputs: Tensor, places: Tensor, forwards: Tensor | bool) -> None:
        order = torch.arange(self.pattern).expand_as(places)
        inputs.scatter_(1, places, torch.where(torch.as_tensor(forwards), order, order.flip(1)))

    def _places(
        self, generator: torch.Generator, batch: int, length: int, loose: tuple[bool, ...]
    ) -> tuple[Tensor, ...]:
        """Places of each group, (batch, pattern), drawn without regard to the answer: apart, in any sequence."""
        size, groups = self.pattern, len(loose)
        gaps = torch.randint(1, self.slack + 1, (batch, groups), generator=generator) * torch.tensor(loose)
        widths = size + gaps
        order = torch.rand(batch, groups, generator=generator).argsort(1)
        free = length - widths.sum(1, keepdim=True)
        filler = (torch.rand(batch, groups, generator=generator) * (free + 1)).long().minimum(free).sort(1).values
        ordered = widths.gather(1, order)
        starts = torch.empty_like(widths).scatter_(1, order, filler + ordered.cumsum(1) - ordered)
        return tuple(starts[:, i : i + 1] + self._within(generator, widths[:, i : i + 1]) for i in range(groups))

    def _within(self, generator: torch.Generator, width: Tensor) -> Tensor:
        """Offsets of a group: from the first to the last place of its width, gaps anywhere between."""
        inner = torch.arange(self.pattern + self.slack)[None]
        rank = torch.rand(len(width), self.pattern + self.slack, generator=generator)
        rank = torch.where((inner == 0) | (inner == width - 1), -1.0, rank)
        rank = torch.where(inner >= width, 2.0, rank)
        return rank.argsort(1)[:, : self.pattern].sort(1).values

    def solve(self, inputs: list[int]) -> list[Answer]:
        wanted = list(range(self.pattern))
        starts = range(len(inputs) - self.pattern + 1)
        ends = [s + self.pattern - 1 for s in starts if inputs[s : s + self.pattern] == wanted]
        return [int(bool(ends))] if self.ask == "detection" else list(ends)

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        inputs, places = batch.inputs, line(batch.inputs.shape[1])
        first, last = inputs == 0, inputs == self.pattern - 1
        beside = ((inputs[:, 1:] < self.pattern) & (inputs[:, :-1] < self.pattern)).sum(1)
        if self.ask == "detection":
            return {
                "symbols at the end of the sequence": inputs[:, -1],
                "the first symbol somewhere before the last": (first.cumsum(1) * last).sum(1),
                "how many of its symbols stand side by side": beside,
            }
        run = torch.stack([(inputs < self.pattern).roll(back, 1) for back in range(self.pattern)]).all(0)
        ends = torch.where(run & (places >= self.pattern - 1), places, -1)
        return {
            "the last symbol's last place": torch.where(last, places, -1).amax(1, keepdim=True),
            "the last symbol's first place": torch.where(last, places, len(places[0])).amin(1, keepdim=True),
            "the end of the last dense group": ends.amax(1, keepdim=True),
        }
