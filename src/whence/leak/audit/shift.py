"""The shift test: the same content under the same mask at another position.

Correlations with position are not sufficient evidence: with half of the tokens masked, the number of visible tokens to
the left predicts position whether or not position leaks. The shift test is an intervention. A block of visible and
masked tokens is embedded at two offsets in an otherwise fully masked sequence, and the predictions inside the block are
compared. A model that uses relative context only makes the same predictions at both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from whence.leak.audit.measures import Excess, beyond_noise, deviation
from whence.leak.audit.target import AuditTarget
from whence.leak.masks import draw
from whence.leak.metrics import ShiftTest
from whence.random import derive, preserve_rng_state

ROWS = 24
SAME = 1e-6
"""Standard deviation of predictions, relative to that of the targets, below which they are equal up to rounding."""
NOISY_PASSES = 16
"""Forward passes per placement of a model that draws random numbers."""


@dataclass(frozen=True, eq=False)
class Placement:
    """A block of content at one offset of an otherwise fully masked sequence."""

    content: Tensor
    masked: Tensor
    predicted: Tensor
    """bool (rows, tokens): the masked tokens of the block, in the same order at every offset"""


@dataclass(frozen=True)
class ShiftedPair:
    """The same block at the beginning and `by` steps later."""

    by: int
    here: Placement
    there: Placement


def placements(target: AuditTarget, ratio: float, seed: int = 0) -> list[ShiftedPair]:
    """Shifts by a third of the sequence, by one step less, and by two steps.

    There are two large shifts because a periodic model makes the same predictions at every multiple of its period. The
    small shift leaves few masked tokens outside of the block, as in normal use of the model.
    """
    steps = target.maskable // target.stride
    far = max(1, steps // 3)
    here: dict[int, Placement] = {}  # by length of the block, which two of the three pairs share
    pairs = []
    for by, room in dict.fromkeys([(far, far), (max(1, far - 1), far), (min(2, far), min(2, far))]):
        block = (steps - room) * target.stride
        masked = draw(torch.Generator().manual_seed(seed), len(target.content), block, ratio, target.pattern)
        here.setdefault(block, _placed(target, masked, 0))
        pairs.append(ShiftedPair(by, here[block], _placed(target, masked, by)))
    return pairs


def _placed(target: AuditTarget, masked: Tensor, by: int) -> Placement:
    """The first tokens with their mask, shifted by a number of steps; all other tokens are masked."""
    first, block = target.ends[0], masked.shape[1]
    here = slice(first + by * target.stride, first + by * target.stride + block)
    content, everywhere = target.content.clone(), torch.zeros(len(masked), target.tokens, dtype=torch.bool)
    predicted = everywhere.clone()
    everywhere[:, target.inner] = True
    content[:, here] = target.content[:, first : first + block]
    everywhere[:, here], predicted[:, here] = masked, masked
    return Placement(content, everywhere, predicted)


def shift_test(
    target: AuditTarget, ratio: float, targets: float, seed: int = 0, prediction_std: float | None = None
) -> ShiftTest:
    """Shift sensitivity of the predictions at one mask ratio: averaged over rows, and the largest over placements.

    Args:
        targets: standard deviation of the targets.
        prediction_std: standard deviation of the predictions; by default, that at these placements. Ablations pass that
            of the model with all pathways.
    """
    pairs = _outcomes(target, ratio, seed, lambda few, place: {"": few.predictions(place.content, place.masked)})
    own = _pooled(pairs[""]) if prediction_std is None else prediction_std
    shares = _shares(pairs[""], own, SAME * targets)
    largest = max(shares.values(), key=lambda excess: excess.value)
    return ShiftTest(
        sensitivity=largest.value,
        over_target=largest.value * (own / targets) ** 2,
        limit=max(excess.limit for excess in shares.values()),
        placements={by: excess.value for by, excess in shares.items()},
        prediction_std=own,
    )


def shift_profile(target: AuditTarget, ratio: float, seed: int = 0) -> dict[str, float]:
    """Shift sensitivity of the activations after every layer, relative to their own variance."""
    pairs = _outcomes(target, ratio, seed, lambda few, place: few.activations(place.content, place.masked))
    largest = {}
    for layer in target.layers:
        size = torch.cat([pair.flatten() for _, pair in pairs[layer]]).pow(2).mean().sqrt()
        shares = _shares(pairs[layer], _pooled(pairs[layer]), SAME * float(size))
        largest[layer] = max(excess.value for excess in shares.values())
    return largest


Pairs = list[tuple[int, Tensor]]
"""By shift: (passes, 2, rows, masked tokens of the block, width), the 2 being the offsets"""


def _outcomes(
    target: AuditTarget, ratio: float, seed: int, run: Callable[[AuditTarget, Placement], dict[str, Tensor]]
) -> dict[str, Pairs]:
    """Run the model at all placements. Passes at both offsets start from the same random state."""
    target = target.with_rows(ROWS)
    passes = NOISY_PASSES if target.is_noisy() else 1

    @functools.cache
    def outcome(place: Placement) -> dict[str, Tensor]:
        """By name: (passes, rows, masked tokens of the block, width). Every row has the same number of them."""
        several: dict[str, list[Tensor]] = {}
        for index in range(passes):
            with preserve_rng_state():
                torch.manual_seed(derive(seed, index))
                for name, values in run(target, place).items():
                    by_row = values[place.predicted].double().unflatten(0, (len(values), -1))
                    several.setdefault(name, []).append(by_row)
        return {name: torch.stack(values) for name, values in several.items()}

    pairs: dict[str, Pairs] = {}
    for shifted in placements(target, ratio, seed):
        here, there = outcome(shifted.here), outcome(shifted.there)
        for name in here:
            pairs.setdefault(name, []).append((shifted.by, torch.stack([here[name], there[name]], 1)))
    return pairs


def _pooled(pairs: Pairs) -> float:
    """Standard deviation over all placements, rows and tokens."""
    return deviation(torch.cat([values.flatten(0, -2) for _, values in pairs]))


def _shares(pairs: Pairs, own: float, rounding: float) -> dict[int, Excess]:
    """Variance caused by shifting divided by `own` squared, by shift; 0 if predictions are equal up to rounding."""
    if own <= rounding:
        return {by: Excess(0.0, 0.0) for by, _ in pairs}
    sizes = {by: _size(values[:, 0] - values[:, 1]) for by, values in pairs}
    return {by: Excess(min(1.0, size.value / own**2), size.limit / own**2) for by, size in sizes.items()}


def _size(difference: Tensor) -> Excess:
    """Variance between two offsets, from their difference (passes, rows, tokens, width).

    Several passes separate noise from position. The part that the tokens of a row share and the rest are tested
    separately, so that noise shared by a row does not hide differences within it.
    """
    if len(difference) == 1:
        return Excess(float(difference.pow(2).mean()) / 2, 0.0)
    shared = difference.mean(2, keepdim=True)
    parts = [beyond_noise(part) for part in (shared, difference - shared)]
    return Excess(sum(part.value for part in parts) / 2, sum(part.limit for part in parts) / 2)
