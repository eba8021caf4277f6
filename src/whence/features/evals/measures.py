"""How good a dictionary is, and what its features have to do with position. Definitions: docs/features.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from whence.features.data.base import States, by_position, sum_of_squares
from whence.features.sae.dictionary import Dictionary
from whence.random import generator

BOUND = 0.5
"""A feature is position-bound where position explains at least so much of its variance."""
FOUND = 0.9
"""A true direction counts as found where a learned one has at least this cosine with it."""
DRAWS = 5
"""Random assignments of masks to features, which chance is the mean over."""
FEW = 20
"""A feature that was active less often than this says nothing about where it is active."""


@dataclass(frozen=True)
class EvalCounts:
    """Sums over states, by position, of everything that the measures are made of."""

    counts: Tensor
    """(context,)"""
    sums: Tensor
    """(context, size) of activations"""
    squares: Tensor
    """(size,) of squared activations"""
    active: Tensor
    """(size,): states at which each feature is active"""
    error: float
    """Sum of squared errors of reconstruction"""
    variance: float
    """Sum of squared distances of the states to their mean"""

    @property
    def fvu(self) -> float:
        """Fraction of variance unexplained."""
        return self.error / self.variance

    @property
    def l0(self) -> float:
        return float(self.active.sum() / self.counts.sum())

    @property
    def profile(self) -> Tensor:
        """(positions, size): mean activation, at the positions that occur"""
        there = self.counts > 0
        return self.sums[there] / self.counts[there, None]


@torch.no_grad()
def tally(dictionary: Dictionary, states: Iterable[States], lifted: bool = False) -> EvalCounts:
    context = 0
    sums = counts = torch.zeros(0)
    squares, active = torch.zeros(dictionary.size, dtype=torch.double), torch.zeros(dictionary.size)
    total, whole, error, seen = torch.zeros(dictionary.width, dtype=torch.double), 0.0, 0.0, 0
    for some, positions in states:
        if int(positions.max()) >= context:
            context = int(positions.max()) + 1
            sums, counts = _longer(sums, (context, dictionary.size)), _longer(counts, (context,))
        codes = dictionary.codes(some, positions, lifted)
        left = some - dictionary.decode(codes, positions)
        some, positions, codes, left = some.cpu(), positions.cpu(), codes.cpu(), left.cpu()
        sums += by_position(codes, positions, context)
        counts += torch.bincount(positions, minlength=context)
        squares += codes.square().sum(0)
        active += (codes > 0).sum(0)
        error += sum_of_squares(left)
        total, whole, seen = total + some.sum(0), whole + sum_of_squares(some), seen + len(some)
    return EvalCounts(counts, sums, squares, active, error, whole - float(total.square().sum()) / seen)


def _longer(table: Tensor, shape: tuple[int, ...]) -> Tensor:
    longer = torch.zeros(shape, dtype=torch.double)
    longer[: len(table)] = table if len(table) else 0
    return longer


def measure(dictionary: Dictionary, states: Iterable[States], assigned: Tensor | None = None) -> dict[str, Any]:
    """With masks as trained, and with them lifted. assigned: (context, size), where features may speak, if masked."""
    parts = list(states)
    used = tally(dictionary, parts)
    found: dict[str, Any] = {
        "fvu": used.fvu,
        "l0": used.l0,
        "dead": float((used.active == 0).double().mean()),
        "states": int(used.counts.sum()),
    }
    lifted = used if assigned is None else tally(dictionary, parts, lifted=True)
    found["lifted"] = {"fvu": lifted.fvu, "l0": lifted.l0, "fidelity": told(fidelity(lifted))}
    found["fidelity"] = told(fidelity(used))
    if assigned is not None:
        found["lifted"]["retention"] = retention(lifted, assigned.cpu())
    return found


def frequent(found: EvalCounts) -> Tensor:
    """(features,): the numbers of those active often enough to say something about where they are active."""
    return (found.active >= FEW).nonzero().flatten()


def fidelity(found: EvalCounts) -> Tensor:
    """(features,): the share of a feature's variance that its position explains, of the frequent ones, in their order.

    Corrected for chance (ε²): what position explains of noise, about (positions − 1) / states, is taken off.
    """
    often = frequent(found)
    sums, squares = found.sums[:, often], found.squares[often]
    there = found.counts > 0
    n, groups = found.counts.sum(), there.sum()
    mean = sums.sum(0) / n
    between = (sums[there].square() / found.counts[there, None]).sum(0) - n * mean.square()
    total = squares - n * mean.square()
    within = (total - between) / (n - groups).clamp(min=1)
    return (between - (groups - 1) * within) / total.clamp(min=1e-30)


def told(values: Tensor) -> dict[str, float]:
    """Of one number per feature: how many there are, their middle, and how many are position-bound.

    The mean alone would rise when a dictionary merely shrinks.
    """
    if not len(values):
        return {"features": 0, "median": 0.0, "mean": 0.0, "bound": 0}
    return {
        "features": len(values),
        "median": float(values.median()),
        "mean": float(values.mean()),
        "bound": int((values >= BOUND).sum()),
    }


def retention(lifted: EvalCounts, assigned: Tensor) -> dict[str, float]:
    """Correlation over positions of where a feature may speak and where it does once the mask is lifted.

    Its median, and that with other features' masks, which is chance.
    """
    rows = torch.arange(len(lifted.counts)).clamp(max=len(assigned) - 1)[lifted.counts > 0]
    table = assigned.double()[rows]
    own = (lifted.active >= FEW) & (table.std(0) > 1e-6)
    if not own.any() or len(rows) < 3:
        return {"features": 0, "median": 0.0, "chance": 0.0}
    profile, table = lifted.profile[:, own], table[:, own]
    orders = [torch.randperm(table.shape[1], generator=generator("retention", draw)) for draw in range(DRAWS)]
    return {
        "features": int(own.sum()),
        "median": float(_correlation(profile, table).median()),
        "chance": float(torch.stack([_correlation(profile, table[:, order]).median() for order in orders]).mean()),
    }


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Of columns."""
    a, b = (nn.functional.normalize(x - x.mean(0), dim=0) for x in (a, b))
    return (a * b).sum(0)


def recovery(directions: Tensor, truth: dict[str, Tensor]) -> dict[str, dict[str, float]]:
    """For each kind of true direction: mean of the largest cosines, mean with every learned direction used once
    (Hungarian), and the share of those found."""
    learned = nn.functional.normalize(directions.double(), dim=1)
    true = nn.functional.normalize(torch.cat(list(truth.values())).double(), dim=1)
    cosines = true @ learned.mT
    rows, columns = linear_sum_assignment(-cosines.numpy())
    matched = torch.zeros(len(true), dtype=torch.double)
    matched[torch.from_numpy(rows)] = cosines[torch.from_numpy(rows), torch.from_numpy(columns)]
    largest = cosines.amax(1)
    found, begin = {}, 0
    for kind, those in truth.items():
        here = slice(begin, begin := begin + len(those))
        found[kind] = {
            "largest": float(largest[here].mean()),
            "matched": float(matched[here].mean()),
            "found": float((matched[here] >= FOUND).double().mean()),
        }
    return found


def stability(one: Tensor, other: Tensor) -> float:
    """Mean cosine of two dictionaries' directions (size, width), matched one to one."""
    return recovery(one, {"all": other})["all"]["matched"]
