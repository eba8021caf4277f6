"""The same content in the same arrangement, elsewhere: what changes is absolute position, and nothing else.

Statistics over places cannot tell a model that knows where it is from one that only sees how hidden and visible tokens
lie around it: with half of them hidden, counting the visible ones to the left gives the place away. Moving everything
can. A block of tokens, some visible and some hidden, is set into a sequence that is hidden otherwise, first at the
beginning, then further on. A model that knows only what lies around a token says the same both times.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whence.leak.masks import draw
from whence.leak.measures import deviation
from whence.leak.subject import Subject

ROWS = 24


@dataclass(frozen=True)
class Placement:
    """A block of content at one place of a sequence that is hidden otherwise."""

    content: Tensor
    hidden: Tensor
    asked: Tensor
    """bool (rows, tokens): the hidden tokens of the block, in the same order wherever it stands"""


def placements(subject: Subject, ratio: float, seed: int = 0) -> tuple[Placement, Placement]:
    """The same block at the beginning, and a third of the sequence further on."""
    inner = range(*subject.inner().indices(subject.tokens))
    steps = len(inner) // subject.stride
    far = max(1, steps // 3)
    block = (steps - far) * subject.stride
    generator = torch.Generator().manual_seed(seed)
    hidden = draw(generator, len(subject.content), block, ratio, subject.pattern)
    content = subject.content[:, inner.start : inner.start + block]

    def placed(by: int) -> Placement:
        here = slice(inner.start + by * subject.stride, inner.start + by * subject.stride + block)
        moved, gone = subject.content.clone(), torch.zeros(len(content), subject.tokens, dtype=torch.bool)
        asked = gone.clone()
        gone[:, inner.start : inner.stop] = True
        moved[:, here], gone[:, here], asked[:, here] = content, hidden, hidden
        return Placement(moved, gone, asked)

    return placed(0), placed(far)


def shift_effect(
    subject: Subject, ratio: float, targets: float, seed: int = 0, own: float | None = None
) -> dict[str, float]:
    """Variance of predictions that comes from moving, over the targets' variance and over the predictions' own.

    `own`: the predictions' deviation, where it was measured under other conditions. In a model with noise in it, what
    a second look without moving changes is taken off.
    """
    subject = subject.with_rows(ROWS)
    here, there = placements(subject, ratio, seed)

    def said(place: Placement) -> Tensor:
        return subject.said(place.content, place.hidden)[place.asked].double()

    first, other = said(here), said(there)
    size = _size(first, other)
    if subject.noisy():
        size = max(0.0, size - _size(first, said(here)))
    own = deviation(torch.cat([first, other])) if own is None else own
    return {"of_target": size / targets**2, "of_prediction": min(1.0, size / own**2) if own else 0.0, "own": own}


def shift_profile(subject: Subject, ratio: float, seed: int = 0) -> dict[str, float]:
    """The same for the hidden states after every layer, over their own variance."""
    subject = subject.with_rows(ROWS)
    here, there = (
        {layer: states[place.asked].double() for layer, states in subject.states(place.content, place.hidden).items()}
        for place in placements(subject, ratio, seed)
    )
    own = {layer: deviation(torch.cat([here[layer], there[layer]])) for layer in here}
    return {name: min(1.0, _size(here[name], there[name]) / own[name] ** 2) if own[name] else 0.0 for name in here}


def _size(one: Tensor, two: Tensor) -> float:
    """The variance of which two values are a sample."""
    return float((one - two).pow(2).mean() / 2)
