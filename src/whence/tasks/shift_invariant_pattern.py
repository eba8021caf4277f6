"""Locate or detect a pattern of three adjacent symbols at any position."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch, Per, Task, line

Triple = tuple[int, int, int]

PATTERN: Triple = (0, 1, 2)
REVERSED: tuple[Triple, ...] = ((0, 2, 1), (1, 0, 2), (2, 1, 0))
"""Permutations of the pattern in which no two symbols have the same distance and order as in the pattern."""
EASY = 0.03
"""Share of the detection sequences in which pairs of symbols are sufficient."""


def _detection_groups() -> list[tuple[list[Triple], list[Triple]]]:
    """Return the variants of the four groups as pairs (negative, positive).

    A variant assigns a wrong symbol to each slot, the next or the previous one of the pattern. The label is positive if
    the number of right slots is odd in each of the four groups, and negative if it is even.
    """
    variants: list[tuple[list[Triple], list[Triple]]] = []
    for shift in (1, 2):
        lists: tuple[list[Triple], list[Triple]] = ([], [])
        for a, b, c in itertools.product((True, False), repeat=3):
            group = (0 if a else shift, 1 if b else (1 + shift) % 3, 2 if c else (2 + shift) % 3)
            lists[(a + b + c) % 2].append(group)
        variants.append(lists)
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
NEGATIVE_EASY = torch.tensor(REVERSED)
"""(permutation, slot)."""
LOCATION = torch.tensor(_location_groups())
"""(variant, group, slot). The first group is the pattern."""


class ShiftInvariantPattern(Task):
    """Find the position at which the symbols A, B, C occur in adjacent positions and in this order.

    X Y A B C Z → 2        A B A X A C B Y A B C → 8

    With ``ask=detection``, the answer is whether the pattern occurs: X Y A B C Z → 1, X A B Y C A Z B C → 0. The
    symbols of the pattern occur many times in every sequence.

    **Location.** Each sequence contains ABC, three groups with two of its symbols in the right slot (such as ABA, ACC,
    CBC), and the three groups with one of them in the right slot (ACB, CBA, BAC). The target is the position of A in
    ABC. A predictor that uses two of the three slots is correct at most half of the time. At least one token separates
    two groups.

    **Detection.** Each sequence contains four groups of three adjacent symbols, all from the pattern. A positive
    sequence has, for example, the groups ABC ACA BBA BCC, a negative one ABA ACC BBC BCA. All groups of a positive
    sequence have an odd number of right slots; all groups of a negative one have an even number. The number of times
    that a given symbol occupies a given slot is the same in both lists. So is that of a given pair of symbols in a
    given pair of slots. The wrong symbols (previous or next in the pattern), the order of the groups and their spacing
    are drawn independently of the label. Consequences for the interpretation of results:

    - Every triple in the lists, not only ABC, is correlated with the label. A model can detect other triples instead
      of ABC, but not without triples.
    - Sets of three adjacent symbols without their order are triples as well. In combination with the counts of ordered
      pairs they determine the label, although no linear function of them does. The task therefore requires the
      conjunction of three adjacent symbols, of which at least two are ordered.

    **Easy sequences.** The label of a detection sequence is a parity, from which gradient descent receives almost no
    signal at first. In a share of 3 % of these sequences, drawn independently of the label, the four groups are
    therefore ABC ABC ABC ABC (positive) or four of ACB, BAC and CBA (negative). The counts of symbols are equal, but
    the pairs AB, BC and "A, any symbol, C" occur in the positive groups only. A predictor that uses the pairs within
    groups optimally is correct in 51.5 % of all sequences instead of 50 %. At least three tokens separate two groups,
    so that pairs at distances up to 4 rarely connect two groups; boosted trees on the counts of these pairs reach 54 %
    at length 32, where the spacing is tightest. An accuracy of more than 55 % therefore requires triples. The first two
    and the last two tokens belong to no group. Detection is hard to learn by gradient descent: within 300 steps,
    attention with rope remains at the baseline. Location is the default, because it is learned reliably.

    A filler stands on either side of each group. The remaining tokens are background: random symbols of the pattern
    (location: 25 %, detection: 40 %) and fillers, without ABC. Lengths below 32 are not admitted, because too few
    tokens would remain and the spacing of the groups would be nearly constant.
    """

    version = 4
    skill = "Find three given symbols in adjacent positions and in order."
    expressed_by = frozenset({"trigrams"})
    shortcut_window = len(PATTERN) - 2
    per: Per = "sequence"
    shortest = 32
    train_length = 48
    examples = (
        ("", [3, 4, 0, 1, 2, 5], [2]),
        ("", [0, 1, 0, 3, 0, 2, 1, 4, 0, 1, 2], [8]),
        ("ask=detection", [3, 4, 0, 1, 2, 5], [1]),
        ("ask=detection", [3, 0, 1, 4, 2, 0, 5, 1, 2], [0]),
        ("ask=detection", [0, 2, 1, 3, 1, 2, 0, 4, 2, 1, 0], [0]),
    )

    def __init__(
        self,
        *,
        ask: Annotated[
            Literal["location", "detection"],
            Field(description="location: the position at which the pattern starts; detection: whether it occurs"),
        ] = "location",
        others: Annotated[int, Field(ge=1, le=2**16, description="number of filler symbols")] = 12,
    ) -> None:
        self.ask, self.others = ask, others
        self.symbols = len(PATTERN) + others
        self.per, self.outputs = ("sequence", 2) if ask == "detection" else ("place", 1)

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        if self.ask == "detection":
            answers = torch.randint(2, (batch,), generator=generator)
            groups = DETECTION[torch.randint(len(DETECTION), (batch,), generator=generator), answers]
            reverse = NEGATIVE_EASY[torch.randint(len(REVERSED), groups.shape[:2], generator=generator)]
            pairs_suffice = torch.where(answers[:, None, None] == 1, torch.tensor(PATTERN), reverse)
            easy = torch.rand(batch, 1, 1, generator=generator) < EASY
            groups = torch.where(easy, pairs_suffice, groups)
            inputs, _ = self._write(generator, groups, length, density=0.4, spacing=3, margin=2)
            return Batch(inputs, line(length), answers, torch.ones(batch, dtype=torch.bool))
        groups = LOCATION[torch.randint(len(LOCATION), (batch,), generator=generator)]
        inputs, starts = self._write(generator, groups, length, density=0.25)
        return Batch(inputs, line(length), starts[:, :1], torch.ones(batch, 1, dtype=torch.bool))

    def _write(
        self,
        generator: torch.Generator,
        groups: Tensor,
        length: int,
        *,
        density: float,
        spacing: int = 1,
        margin: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Place groups of shape (batch, number, 3) in random order and spacing. Return the inputs and their starts.

        `density` is the probability that a background token is a symbol of the pattern, `spacing` the smallest number
        of tokens between two groups, `margin` that before the first group and after the last.
        """
        batch, number, size = groups.shape
        free = length - number * (size + spacing) + spacing - 2 * margin  # tokens that may stand anywhere
        chosen = torch.rand(batch, free + number, generator=generator).argsort(1)[:, :number]
        stride = size + spacing - 1
        ranked = margin + chosen.sort(1).values + stride * torch.arange(number)  # every spacing is equally likely
        order = torch.rand(batch, number, generator=generator).argsort(1)
        starts = torch.empty_like(ranked).scatter_(1, order, ranked)

        fillers = torch.randint(size, self.symbols, (batch, length), generator=generator)
        background = torch.randint(size, (batch, length), generator=generator)
        from_pattern = torch.rand(batch, length, generator=generator) < density
        inputs = torch.where(from_pattern, background, fillers)
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
            "pair A, B": a[:, :-2] & b[:, 1:-1],
            "pair B, C": b[:, 1:-1] & c[:, 2:],
            "A, any symbol, C": a[:, :-2] & c[:, 2:],
        }
        marked = torch.nn.functional.pad(inputs < len(PATTERN), (1, 1))
        group = marked[:, 1:-3] & marked[:, 2:-2] & marked[:, 3:-1] & ~marked[:, :-4] & ~marked[:, 4:]
        pairs |= {f"{name}, in a group of three between fillers": pair & group for name, pair in pairs.items()}
        return {f"last {name}": torch.where(pair, places, -1).amax(1, keepdim=True) for name, pair in pairs.items()}


def _pattern_starts(inputs: Tensor) -> Tensor:
    """Return where the pattern starts, bool of shape (batch, length − 2)."""
    return (inputs[:, :-2] == 0) & (inputs[:, 1:-1] == 1) & (inputs[:, 2:] == 2)
