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
from whence.leak.measures import beyond_noise, deviation
from whence.leak.subject import Subject

ROWS = 24
CERTAIN = 0.01
"""Share of the predictions' variance that need not be looked for at another distance."""
SAME = 1e-6
"""Deviation, over the targets', below which predictions differ by rounding alone."""
NOISY_LOOKS = 8
"""At a model that answers the same question differently."""


@dataclass(frozen=True)
class Placement:
    """A block of content at one place of a sequence that is hidden otherwise."""

    content: Tensor
    hidden: Tensor
    asked: Tensor
    """bool (rows, tokens): the hidden tokens of the block, in the same order wherever it stands"""


def placements(subject: Subject, ratio: float, seed: int = 0) -> list[tuple[Placement, Placement]]:
    """A block at the beginning, and further on: by a third of the sequence, by one step less, and by two steps.

    Two far distances, since a model that works in windows of its own says the same at every multiple of them. The
    near one leaves hardly anything hidden outside the block, as when the model is used.
    """
    inner = range(*subject.inner().indices(subject.tokens))
    steps = len(inner) // subject.stride
    far = max(1, steps // 3)
    found = []
    for by, room in dict.fromkeys([(far, far), (max(1, far - 1), far), (min(2, far), min(2, far))]):
        block = (steps - room) * subject.stride
        hidden = draw(torch.Generator().manual_seed(seed), len(subject.content), block, ratio, subject.pattern)
        found.append((_placed(subject, inner, hidden, 0), _placed(subject, inner, hidden, by)))
    return found


def _placed(subject: Subject, inner: range, hidden: Tensor, by: int) -> Placement:
    """The first tokens, of which some are hidden, moved by so many steps; all others are hidden."""
    block = hidden.shape[1]
    here = slice(inner.start + by * subject.stride, inner.start + by * subject.stride + block)
    moved, gone = subject.content.clone(), torch.zeros(len(hidden), subject.tokens, dtype=torch.bool)
    asked = gone.clone()
    gone[:, inner.start : inner.stop] = True
    moved[:, here] = subject.content[:, inner.start : inner.start + block]
    gone[:, here], asked[:, here] = hidden, hidden
    return Placement(moved, gone, asked)


def shift_effect(
    subject: Subject, ratio: float, targets: float, seed: int = 0, own: float | None = None
) -> dict[str, float]:
    """Variance of predictions that comes from moving, over the targets' variance and over the predictions' own.

    `own`: the predictions' deviation, where it was measured under other conditions.
    """
    subject = subject.with_rows(ROWS)
    looks = NOISY_LOOKS if subject.noisy() else 1

    def said(place: Placement) -> Tensor:
        return torch.stack([_by_row(subject.said(place.content, place.hidden), place) for _ in range(looks)])

    found = {"of_target": 0.0, "of_prediction": 0.0, "own": own or 0.0}
    for here, there in placements(subject, ratio, seed):
        one, two = said(here), said(there)
        size = _size(one, two)
        usual = deviation(torch.cat([one, two]).flatten(0, -2)) if own is None else own
        share = min(1.0, size / usual**2) if usual > SAME * targets else 0.0
        if share >= found["of_prediction"]:
            found = {"of_target": size / targets**2, "of_prediction": share, "own": usual}
        if share > CERTAIN:
            break
    return found


def shift_profile(subject: Subject, ratio: float, seed: int = 0) -> dict[str, float]:
    """The same for the hidden states after every layer, over their own variance."""
    subject = subject.with_rows(ROWS)
    looks = NOISY_LOOKS if subject.noisy() else 1

    def states(place: Placement) -> dict[str, Tensor]:
        seen = [subject.states(place.content, place.hidden) for _ in range(looks)]
        return {layer: torch.stack([_by_row(one[layer], place) for one in seen]) for layer in subject.layers}

    found = dict.fromkeys(subject.layers, 0.0)
    for here, there in placements(subject, ratio, seed):
        one, two = states(here), states(there)
        for layer in subject.layers:
            own = deviation(torch.cat([one[layer], two[layer]]).flatten(0, -2))
            size = min(1.0, _size(one[layer], two[layer]) / own**2) if own else 0.0
            found[layer] = max(found[layer], size)
        if max(found.values()) > CERTAIN:
            break
    return found


def _by_row(values: Tensor, place: Placement) -> Tensor:
    """(rows, hidden tokens of the block, width): every row hides equally many."""
    return values[place.asked].double().unflatten(0, (len(values), -1))


def _size(one: Tensor, two: Tensor) -> float:
    """The variance of which the two places are a sample; each (looks, rows, tokens, width).

    Several looks at one place are averaged, and what their mean still owes to noise is taken off.
    """
    looks = len(one)
    rows = (one.mean(0) - two.mean(0)).pow(2).mean((1, 2)) / 2
    if looks == 1:
        return float(rows.mean())
    noise = (one.var(0) + two.var(0)).mean((1, 2)) / 2 / looks
    return beyond_noise(rows, noise)
