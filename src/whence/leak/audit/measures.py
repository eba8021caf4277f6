"""Measures of how much predictions of masked tokens depend on position. Undefined measures are None, never 0.

At mask ratio 1, a deterministic model receives the same input for every example and makes one prediction per position.
Any difference is then "explained by position", so that the size of the differences counts, not their share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whence.errors import UserError
from whence.leak.metrics import Leakage

ROUNDING = 1e-4
"""Differences between predictions, relative to the standard deviation of targets, that float32 rounding may cause."""
SHUFFLES = 50


@dataclass(frozen=True)
class Sample:
    """Predictions of masked tokens, and their targets."""

    prediction: Tensor
    """(rows, tokens, features)"""
    target: Tensor
    """(rows, tokens, outputs)"""
    masked: Tensor
    """bool (rows, tokens)"""
    position: Tensor
    """(tokens,)"""
    stride: int = 1
    """Tokens per position, as with one token per channel: these differ for other reasons than position"""

    def __post_init__(self) -> None:
        check_aligned(self.prediction, self.masked)
        if self.target.shape[-1] != self.prediction.shape[-1]:
            raise UserError(
                f"model: expected {self.target.shape[-1]} outputs per token, got {self.prediction.shape[-1]}."
            )
        if not torch.isfinite(self.prediction[self.masked]).all():
            raise UserError(
                "model: expected finite predictions, got values that are infinite or not a number. Check the weights "
                "and the inputs."
            )

    @property
    def single(self) -> bool:
        """Whether all rows have the same mask and, up to rounding, the same predictions."""
        if not bool((self.masked == self.masked[:1]).all()):
            return False
        predicted = self.prediction[:, self.masked[0]]
        return float((predicted - predicted[:1]).abs().max()) <= 1e-5 * float(predicted.abs().max())

    def head(self, rows: int) -> Sample:
        """The first rows."""
        first = {name: getattr(self, name)[:rows] for name in ("prediction", "target", "masked")}
        return replace(self, **first)

    @property
    def rows(self) -> Tensor:
        """The row of every masked token."""
        return torch.arange(len(self.masked))[:, None].expand_as(self.masked)[self.masked]

    @property
    def places(self) -> Tensor:
        """The position of every masked token."""
        return self.position.expand_as(self.masked)[self.masked]

    @property
    def predicted(self) -> Tensor:
        """(masked tokens, features)"""
        return self.prediction[self.masked].double()

    @property
    def truth(self) -> Tensor:
        return self.target[self.masked].double()


def check_aligned(prediction: Tensor, masked: Tensor) -> None:
    if prediction.ndim != 3 or prediction.shape[:2] != masked.shape:
        raise UserError(
            f"model: expected one prediction per token, (rows, tokens, outputs) with {tuple(masked.shape)} rows and "
            f"tokens, got shape {tuple(prediction.shape)}. Check the model, or select the output with prediction=…"
        )


def leakage(sample: Sample) -> Leakage:
    """All measures that need only predictions and targets."""
    targets = deviation(sample.target)
    if targets == 0:
        raise UserError("data: expected targets that vary, got constant ones. Pass other examples.")
    single = sample.single
    one = sample.head(1) if single else sample
    predicted = one.predicted
    equal = _within(one) <= ROUNDING * targets
    between = between_positions(one)
    return Leakage(
        error=error(sample),
        position_variance=between.value / targets**2,
        position_variance_limit=between.limit / targets**2,
        identical=equal,
        correlation=None if equal else correlation(predicted, one.places),
        correlation_chance=None if equal else correlation(predicted, shuffled(one.places, one.rows, SHUFFLES)),
        correlation_target=correlation(sample.truth, sample.places),
        eta2=None if equal or single else eta2(predicted, one.places),
        eta2_target=eta2(sample.truth, sample.places),
        similarity=similarity(one, centered=False),
        similarity_centered=None if equal else similarity(one, centered=True),
    )


def deviation(values: Tensor) -> float:
    """Root mean square distance from the mean over rows and tokens."""
    flat = values.flatten(0, -2).double()
    return float((flat - flat.mean(0)).pow(2).mean().sqrt())


def error(sample: Sample) -> float:
    """Normalized MSE: mean squared error at masked tokens over that of predicting the mean, whose error is 1."""
    truth = sample.truth
    return float((sample.predicted - truth).pow(2).mean() / (truth - truth.mean(0)).pow(2).mean())


@dataclass(frozen=True)
class Excess:
    """A variance in excess of noise."""

    value: float
    """0 where it does not exceed the limit"""
    limit: float
    """Detection limit; 0 where there is no noise"""


def between_positions(sample: Sample) -> Excess:
    """Variance of predictions between positions.

    If every row has the same mask and predictions differ between rows, the differences are noise. Positions are then
    compared by their means over rows, and the noise of the means is subtracted.
    """
    if len(sample.prediction) > 1 and bool((sample.masked == sample.masked[:1]).all()):
        return _between_means(sample)
    return Excess(_within(sample) ** 2, 0.0)


def _within(sample: Sample) -> float:
    """Root mean square deviation of a row's predictions from their mean."""
    predicted, weights = sample.prediction.double(), sample.masked[..., None].double()
    squares = torch.zeros((), dtype=torch.float64)
    for first in range(sample.stride):
        some, counted = predicted[:, first :: sample.stride], weights[:, first :: sample.stride]
        middle = (some * counted).sum(1, keepdim=True) / counted.sum(1, keepdim=True).clamp(min=1)
        squares = squares + ((some - middle) ** 2 * counted).sum()
    return float((squares / (weights.sum() * predicted.shape[-1])).sqrt())


def _between_means(sample: Sample) -> Excess:
    places = sample.masked[0].nonzero().flatten()
    predicted = sample.prediction[:, places].double()
    deviations = torch.zeros_like(predicted)
    for first in range(sample.stride):
        same_channel = places % sample.stride == first
        count = int(same_channel.sum())
        if count > 1:
            # Noise that a row shares cancels between positions and must not be subtracted, so rows are centered.
            centered = predicted[:, same_channel] - predicted[:, same_channel].mean(1, keepdim=True)
            deviations[:, same_channel] = centered * (count / (count - 1)) ** 0.5
    return beyond_noise(deviations)


def beyond_noise(draws: Tensor) -> Excess:
    """Mean square of the part that all draws (draws, …) share, if it exceeds four of its standard errors.

    The mean of products of different draws is free of noise, even if noise is correlated within a draw. The limit is
    four standard errors because an audit makes enough measurements for two to be exceeded by chance.
    """
    flat = draws.flatten(1)
    products = flat @ flat.T / flat.shape[1]
    pairs = products[torch.ones_like(products, dtype=torch.bool).triu(1)]
    value, limit = float(pairs.mean()), 4 * float(pairs.std()) / len(pairs) ** 0.5
    return Excess(value if value > limit else 0.0, limit)


def correlation(values: Tensor, places: Tensor) -> float | None:
    """Mean |Pearson r| with position, (tokens,) or (tokens, several orders), over dimensions that vary."""
    places = places.view(len(places), -1).double()
    centered, place = values - values.mean(0), places - places.mean(0)
    norms, sizes = centered.norm(dim=0), place.norm(dim=0)
    vary = norms > 1e-12 * values.norm(dim=0).clamp(min=1e-300)
    if not vary.any() or (sizes == 0).any():
        return None
    return float(((centered[:, vary].T @ place) / (norms[vary, None] * sizes)).abs().mean())


def shuffled(places: Tensor, rows: Tensor, times: int, seed: int = 0) -> Tensor:
    """(tokens, times): positions under the null hypothesis that predictions do not depend on them.

    Positions are rotated by a random offset in every row. Neighbours stay neighbours, since their predictions are
    similar whether position leaks or not. A single row is permuted instead.
    """
    generator = torch.Generator().manual_seed(seed)
    first, length = int(places.min()), int(places.max() - places.min()) + 1
    if len(rows.unique()) == 1:
        orders = [torch.randperm(len(places), generator=generator) for _ in range(times)]
        return torch.stack([places[order] for order in orders], 1).double()
    turns = torch.randint(length, (int(rows.max()) + 1, times), generator=generator)
    return ((places[:, None] - first + turns[rows]) % length + first).double()


def eta2(values: Tensor, places: Tensor) -> float | None:
    """Share of the variance that position explains, whatever the function, corrected for chance (ε²)."""
    kinds, group = places.unique(return_inverse=True)
    n, k = len(values), len(kinds)
    total = (values - values.mean(0)).pow(2).sum()
    if n <= k or total == 0:
        return None
    sums = torch.zeros(k, values.shape[1], dtype=values.dtype).index_add_(0, group, values)
    counts = torch.bincount(group, minlength=k).to(values.dtype)[:, None]
    within = (values - (sums / counts)[group]).pow(2).sum()
    return float((total - within - (k - 1) * within / (n - k)) / total)


def similarity(sample: Sample, *, centered: bool) -> float | None:
    """Mean cosine between two predictions of a row; centered: after subtracting the mean of all predictions."""
    predicted = sample.prediction.double()
    if centered:
        predicted = predicted - predicted[sample.masked].mean(0)
    if not bool(predicted[sample.masked].norm(dim=-1).min() > 0):
        return None  # a vector of zeros has no direction
    unit = predicted / predicted.norm(dim=-1, keepdim=True).clamp(min=1e-300) * sample.masked[..., None]
    counts = sample.masked.sum(1).double()
    many = counts > 1
    if not many.any():
        return None
    pairs = (unit.sum(1).pow(2).sum(-1) - unit.pow(2).sum((1, 2)))[many]
    return float((pairs / (counts * (counts - 1))[many]).mean())
