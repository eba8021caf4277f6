"""Detect or locate a pattern of three adjacent symbols at any position."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks.base import Answer, Batch, Per, Task, line

Triple = tuple[int, int, int]

PATTERN: Triple = (0, 1, 2)
DENSITY = 0.25
"""Probability that a background token is a symbol of the pattern."""


def _detection_groups() -> list[tuple[list[Triple], list[Triple]]]:
    """Return the variants of the six groups as pairs (negative, positive).

    A variant picks a pivot slot and a wrong symbol for it. The other two slots hold an ordered pair of different
    symbols. Three of the six pairs have the cyclic order of the pattern. The label is positive if these three meet the
    right pivot symbol and the three reversed pairs meet the wrong one, and negative if it is the other way around.
    """
    variants: list[tuple[list[Triple], list[Triple]]] = []
    for pivot in PATTERN:
        a, b = (symbol for symbol in PATTERN if symbol != pivot)
        cyclic = [(a, b), (b, pivot), (pivot, a)]
        reverse = [(right, left) for left, right in cyclic]
        for wrong in PATTERN:
            if wrong != pivot:
                positive = [_triple(pivot, pivot, pair) for pair in cyclic]
                positive += [_triple(pivot, wrong, pair) for pair in reverse]
                negative = [_triple(pivot, pivot, pair) for pair in reverse]
                negative += [_triple(pivot, wrong, pair) for pair in cyclic]
                variants.append((negative, positive))
    return variants


def _triple(slot: int, symbol: int, pair: tuple[int, int]) -> Triple:
    """Return the triple with `symbol` in `slot` and `pair` in the other two slots."""
    left, right = pair
    return ((symbol, left, right), (left, symbol, right), (left, right, symbol))[slot]


def _location_groups() -> list[list[Triple]]:
    """Return the variants of the seven groups: the pattern, three with two right slots, three with one."""
    pairs = ((1, 2), (0, 2), (0, 1))
    variants: list[list[Triple]] = []
    for shifts in itertools.product((1, 2), repeat=3):
        near = [_triple(slot, (slot + shifts[slot]) % 3, pairs[slot]) for slot in PATTERN]
        swapped = [_triple(slot, slot, (right, left)) for slot, (left, right) in enumerate(pairs)]
        variants.append([PATTERN, *near, *swapped])
    return variants


DETECTION = torch.tensor(_detection_groups())
"""(variant, label, group, slot)."""
LOCATION = torch.tensor(_location_groups())
"""(variant, group, slot). The first group is the pattern."""


class ShiftInvariantPattern(Task):
    """Detect the symbols A, B, C in adjacent positions and in this order, or (ask=location) find where they start.

    X Y A B C Z → 1 (location: 2)        X A B Y C A Z B C → 0

    The symbols of the pattern occur many times in every sequence. Only the ordered triple A B C separates the labels.

    **Detection.** Each sequence contains six groups of three adjacent symbols, all from the pattern. A positive
    sequence has, for example, the groups ABC BCC CAC BAA CBA ACA, a negative one ABA BCA CAA BAC CBC ACC. The number
    of times that a given symbol occupies a given slot is the same in both lists. So is that of a given pair of symbols
    in a given pair of slots, and that of a given unordered triple. Counts of symbols, of pairs at any distance and of
    unordered neighborhoods therefore have equal means under both labels. The label decides only which of two lists is
    used; one of six such pairs of lists, the order of the groups and their spacing are drawn independently of it.
    Ordered triples other than ABC are correlated with the label as well; this follows from equal counts of pairs. A
    model can therefore detect some of them instead of ABC, but not without ordered triples. The same holds for
    predictors that combine the exact positions of several symbols or bigrams.

    **Location.** Each sequence contains ABC, three groups with two of its symbols in the right slot (such as ABA, ACC,
    CBC), and the three groups with one of them in the right slot (ACB, CBA, BAC). The target is the position of A in
    ABC. A predictor that uses two of the three slots is correct at most half of the time.

    A filler separates each group from the rest of the sequence. The remaining tokens are background: random symbols of
    the pattern (25 %) and fillers, without ABC. Lengths below 32 are not admitted, because too few tokens would remain
    and the spacing of the groups would be nearly constant.
    """

    version = 2
    skill = "Find three given symbols in adjacent positions and in order."
    expressed_by = frozenset({"trigrams"})
    shortcut_window = len(PATTERN) - 2
    per: Per = "sequence"
    shortest = 32
    train_length = 48
    examples = (
        ("", [3, 4, 0, 1, 2, 5], [1]),
        ("", [3, 0, 1, 4, 2, 0, 5, 1, 2], [0]),
        ("", [0, 2, 1, 3, 1, 2, 0, 4, 2, 1, 0], [0]),
        ("ask=location", [3, 4, 0, 1, 2, 5], [2]),
        ("ask=location", [0, 1, 0, 3, 0, 2, 1, 4, 0, 1, 2], [8]),
    )

    def __init__(
        self,
        *,
        ask: Annotated[
            Literal["detection", "location"],
            Field(description="detection: whether the pattern occurs; location: the position at which it starts"),
        ] = "detection",
        others: Annotated[int, Field(ge=1, description="number of filler symbols")] = 12,
    ) -> None:
        self.ask, self.others = ask, others
        self.symbols = len(PATTERN) + others
        self.per, self.outputs = ("sequence", 2) if ask == "detection" else ("place", 1)

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        if self.ask == "detection":
            answers = torch.randint(2, (batch,), generator=generator)
            groups = DETECTION[torch.randint(len(DETECTION), (batch,), generator=generator), answers]
            inputs, _ = self._write(generator, groups, length)
            return Batch(inputs, line(length), answers, torch.ones(batch, dtype=torch.bool))
        groups = LOCATION[torch.randint(len(LOCATION), (batch,), generator=generator)]
        inputs, starts = self._write(generator, groups, length)
        return Batch(inputs, line(length), starts[:, :1], torch.ones(batch, 1, dtype=torch.bool))

    def _write(self, generator: torch.Generator, groups: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Place groups of shape (batch, number, 3) in random order and spacing. Return the inputs and their starts."""
        batch, number, size = groups.shape
        free = length - number * (size + 1) + 1  # tokens that are neither in a group nor the filler between two
        chosen = torch.rand(batch, free + number, generator=generator).argsort(1)[:, :number]
        ranked = chosen.sort(1).values + size * torch.arange(number)  # every spacing is equally likely
        order = torch.rand(batch, number, generator=generator).argsort(1)
        starts = torch.empty_like(ranked).scatter_(1, order, ranked)

        fillers = torch.randint(size, self.symbols, (batch, length), generator=generator)
        background = torch.randint(size, (batch, length), generator=generator)
        keep = torch.rand(batch, length, generator=generator) < DENSITY
        inputs = torch.where(keep, background, fillers)
        inputs[:, 2:] = torch.where(_pattern_starts(inputs), fillers[:, 2:], inputs[:, 2:])

        sides = torch.cat([starts - 1, starts + size], 1).clamp(0, length - 1)  # at either end a group overwrites them
        inputs.scatter_(1, sides, fillers.gather(1, sides))
        places = starts[..., None] + torch.arange(size)
        inputs.scatter_(1, places.flatten(1), groups.flatten(1))
        return inputs, starts

    def solve(self, inputs: list[int]) -> list[Answer]:
        starts = [s for s in range(len(inputs) - 2) if inputs[s : s + 3] == list(PATTERN)]
        return [int(bool(starts))] if self.ask == "detection" else list(starts)

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        inputs, places = batch.inputs, line(batch.inputs.shape[1] - 2)
        a, b, c = (inputs == symbol for symbol in PATTERN)
        if self.ask == "detection":
            return {
                "last symbol": inputs[:, -1],
                "number of pairs A, B in adjacent positions": (a[:, :-1] & b[:, 1:]).sum(1),
                "number of pairs A before C": (a.cumsum(1) * c).sum(1),
            }
        pairs = {
            "last pair A, B": a[:, :-2] & b[:, 1:-1],
            "last pair B, C": b[:, 1:-1] & c[:, 2:],
            "last A, any symbol, C": a[:, :-2] & c[:, 2:],
        }
        return {name: torch.where(pair, places, -1).amax(1, keepdim=True) for name, pair in pairs.items()}


def _pattern_starts(inputs: Tensor) -> Tensor:
    """Return where the pattern starts, bool of shape (batch, length − 2)."""
    return (inputs[:, :-2] == 0) & (inputs[:, 1:-1] == 1) & (inputs[:, 2:] == 2)
