"""Detect a forward pattern beside a reversed one. A shortcut solves it, so it is not ranked."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch, Per, Task, line


class ReversedPattern(Task):
    """Is the dense copy of the pattern in order and the loose copy reversed? Unranked: a shortcut solves it.

    pattern A B C:  X A B C Y C Z B A → 1 (location: 3)        X A Y B C X C B A → 0

    Every sequence holds the symbols of the pattern twice: once in adjacent positions (dense) and once with gaps
    (loose). One copy is in order and the other is reversed. The label is 1 if the dense copy is in order. With
    ``ask=location``, sequences hold the pattern, a dense reversed copy and a loose copy in order, and the target is
    the last position of the pattern.

    The task does not measure pattern detection. The loose copy spans more positions than the dense one, so the sign of
    Σ pos(A) − Σ pos(C) equals the label at every length. Location is solved by "A, any symbol, C". The task is kept
    because earlier results were measured on it; use ``shift_invariant_pattern`` for comparisons.
    """

    ranked = False
    skill = "Find the symbols of the pattern in adjacent positions and in order."
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
            Literal["detection", "location"],
            Field(description="whether the dense copy is in order, or where the pattern ends"),
        ] = "detection",
        pattern: Annotated[int, Field(ge=2, le=6, description="number of symbols in the pattern")] = 3,
        slack: Annotated[int, Field(ge=1, le=2**16, description="largest total gap of the loose copy")] = 2,
        others: Annotated[int, Field(ge=1, le=2**16, description="number of filler symbols")] = 12,
    ) -> None:
        self.ask, self.pattern, self.slack, self.others = ask, pattern, slack, others
        self.symbols = pattern + others
        self.shortcut_window = pattern - 2
        self.expressed_by = frozenset({2: {"bigrams", "trigrams"}, 3: {"trigrams"}}.get(pattern, ()))
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
        """Return positions of each group, (batch, pattern), drawn independently of the label."""
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
        """Return offsets within a group: both ends of its width, and random positions between them."""
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
        if self.ask == "detection":
            difference = (first * places).sum(1) - (last * places).sum(1)
            return {"sign of the position sum of the first symbol minus the last": difference.sign()}
        ends = last & (inputs == 0).roll(self.pattern - 1, 1)
        ends[:, : self.pattern - 1] = False
        return {
            "last position of the last symbol": torch.where(last, places, -1).amax(1, keepdim=True),
            "first and last symbol at the right distance": torch.where(ends, places, -1).amax(1, keepdim=True),
        }
