"""Metrics of a dictionary and of the position selectivity of its features. Definitions: docs/features.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from whence.features.data import ActivationBatch, by_position, sum_of_squares
from whence.features.metrics import (
    DictionaryMetrics,
    MaskOffMetrics,
    RecoveryMetrics,
    RetentionMetrics,
    SelectivityMetrics,
)
from whence.features.sae.dictionary import Dictionary
from whence.random import generator

POSITION_SPECIFIC = 0.5
"""Position selectivity from which a feature is position-specific."""
RECOVERED = 0.9
"""Cosine with a learned direction from which a true direction counts as recovered."""
DRAWS = 5
"""Random assignments of masks to features, over which chance is averaged."""
FEW = 20
"""Smallest number of activations of a feature for which its selectivity is measured."""


@dataclass(frozen=True)
class FeatureStatistics:
    """Sums over activations, from which all measures are computed."""

    counts: Tensor
    """(context_size,)"""
    sums: Tensor
    """(context_size, d_sae) of activations"""
    squares: Tensor
    """(d_sae,) of squared activations"""
    active: Tensor
    """(d_sae,): number of activations for which each feature is active"""
    error: float
    """Sum of squared errors of reconstruction"""
    variance: float
    """Sum of squared distances of the activations from their mean"""

    @property
    def fvu(self) -> float:
        """Fraction of variance unexplained."""
        return self.error / self.variance

    @property
    def l0(self) -> float:
        return float(self.active.sum() / self.counts.sum())

    @property
    def profile(self) -> Tensor:
        """(positions, d_sae): mean activation, at the positions that occur"""
        there = self.counts > 0
        return self.sums[there] / self.counts[there, None]


@torch.no_grad()
def feature_statistics(
    dictionary: Dictionary, activations: Iterable[ActivationBatch], mask_off: bool = False
) -> FeatureStatistics:
    context_size = 0
    sums = counts = torch.zeros(0)
    squares, active = torch.zeros(dictionary.d_sae, dtype=torch.double), torch.zeros(dictionary.d_sae)
    total, whole, error, seen = torch.zeros(dictionary.d_in, dtype=torch.double), 0.0, 0.0, 0
    for some, positions in activations:
        if int(positions.max()) >= context_size:
            context_size = int(positions.max()) + 1
            sums, counts = _longer(sums, (context_size, dictionary.d_sae)), _longer(counts, (context_size,))
        codes = dictionary.encode(some, positions, mask_off)
        left = some - dictionary.decode(codes, positions)
        some, positions, codes, left = some.cpu(), positions.cpu(), codes.cpu(), left.cpu()
        sums += by_position(codes, positions, context_size)
        counts += torch.bincount(positions, minlength=context_size)
        squares += codes.square().sum(0)
        active += (codes > 0).sum(0)
        error += sum_of_squares(left)
        total, whole, seen = total + some.sum(0), whole + sum_of_squares(some), seen + len(some)
    return FeatureStatistics(counts, sums, squares, active, error, whole - float(total.square().sum()) / seen)


def _longer(table: Tensor, shape: tuple[int, ...]) -> Tensor:
    longer = torch.zeros(shape, dtype=torch.double)
    longer[: len(table)] = table if len(table) else 0
    return longer


def dictionary_metrics(
    dictionary: Dictionary, activations: Iterable[ActivationBatch], mask_values: Tensor | None = None
) -> DictionaryMetrics:
    """Metrics with the mask as trained and with the mask off. mask_values: (context_size, d_sae); None: no mask."""
    parts = list(activations)
    used = feature_statistics(dictionary, parts)
    mask_off = used if mask_values is None else feature_statistics(dictionary, parts, mask_off=True)
    return DictionaryMetrics(
        fvu=used.fvu,
        l0=used.l0,
        dead=float((used.active == 0).double().mean()),
        activations=int(used.counts.sum()),
        position_selectivity=selectivity_metrics(position_selectivity(used)),
        mask_off=MaskOffMetrics(
            fvu=mask_off.fvu,
            l0=mask_off.l0,
            position_selectivity=selectivity_metrics(position_selectivity(mask_off)),
            retention=None if mask_values is None else retention(mask_off, mask_values.detach().cpu()),
        ),
    )


def frequent(statistics: FeatureStatistics) -> Tensor:
    """(features,): indices of the features that are active often enough to measure their selectivity."""
    return (statistics.active >= FEW).nonzero().flatten()


def position_selectivity(statistics: FeatureStatistics) -> Tensor:
    """(features,): share of the variance of each frequent feature that position explains.

    Corrected for chance (ε²): the share that position explains of noise, about (positions − 1) / activations, is
    subtracted.
    """
    often = frequent(statistics)
    sums, squares = statistics.sums[:, often], statistics.squares[often]
    there = statistics.counts > 0
    n, groups = statistics.counts.sum(), there.sum()
    mean = sums.sum(0) / n
    between = (sums[there].square() / statistics.counts[there, None]).sum(0) - n * mean.square()
    total = squares - n * mean.square()
    within = (total - between) / (n - groups).clamp(min=1)
    return (between - (groups - 1) * within) / total.clamp(min=1e-30)


def selectivity_metrics(values: Tensor) -> SelectivityMetrics:
    """values: one number per feature."""
    if not len(values):
        return SelectivityMetrics(features=0, median=0.0, mean=0.0, position_specific=0)
    return SelectivityMetrics(
        features=len(values),
        median=float(values.median()),
        mean=float(values.mean()),
        position_specific=int((values >= POSITION_SPECIFIC).sum()),
    )


def retention(mask_off: FeatureStatistics, mask_values: Tensor) -> RetentionMetrics:
    rows = torch.arange(len(mask_off.counts)).clamp(max=len(mask_values) - 1)[mask_off.counts > 0]
    table = mask_values.double()[rows]
    own = (mask_off.active >= FEW) & (table.std(0) > 1e-6)
    if not own.any() or len(rows) < 3:
        return RetentionMetrics(features=0, median=0.0, chance=0.0)
    profile, table = mask_off.profile[:, own], table[:, own]
    orders = [torch.randperm(table.shape[1], generator=generator("retention", draw)) for draw in range(DRAWS)]
    return RetentionMetrics(
        features=int(own.sum()),
        median=float(_correlation(profile, table).median()),
        chance=float(torch.stack([_correlation(profile, table[:, order]).median() for order in orders]).mean()),
    )


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Of columns."""
    a, b = (nn.functional.normalize(x - x.mean(0), dim=0) for x in (a, b))
    return (a * b).sum(0)


def recovery(directions: Tensor, truth: Mapping[str, Tensor]) -> dict[str, RecoveryMetrics]:
    """For each kind of true direction. Directions are matched one to one by the Hungarian algorithm."""
    learned = nn.functional.normalize(directions.double(), dim=1)
    true = nn.functional.normalize(torch.cat(list(truth.values())).double(), dim=1)
    cosines = true @ learned.mT
    rows, columns = linear_sum_assignment(-cosines.numpy())
    matched = torch.zeros(len(true), dtype=torch.double)
    matched[torch.from_numpy(rows)] = cosines[torch.from_numpy(rows), torch.from_numpy(columns)]
    largest = cosines.amax(1)
    metrics, begin = {}, 0
    for kind, those in truth.items():
        here = slice(begin, begin := begin + len(those))
        metrics[kind] = RecoveryMetrics(
            largest=float(largest[here].mean()),
            matched=float(matched[here].mean()),
            recovered=float((matched[here] >= RECOVERED).double().mean()),
        )
    return metrics


def seed_stability(one: Tensor, other: Tensor) -> float:
    """Mean cosine of two dictionaries' directions (d_sae, d_in), matched one to one."""
    return recovery(one, {"all": other})["all"].matched
