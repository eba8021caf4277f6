"""How much of the predictions of masked tokens is position. What is undefined is None, never 0.

At a ratio of 1 every example looks the same to a deterministic model: there is one prediction per place, so that any
difference at all is "explained by position". There the size of the differences counts, not their share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whence.errors import UserError
from whence.leak.metrics import Leakage

ROUNDING = 1e-4
"""Differences between predictions, over the deviation of the targets, that float32 alone may make in a deep model."""
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
    """Tokens per step of position: those of one step differ for other reasons than position"""

    def __post_init__(self) -> None:
        check_aligned(self.prediction, self.masked)
        if self.target.shape[-1] != self.prediction.shape[-1]:
            raise UserError(
                f"model: expected {self.target.shape[-1]} outputs per token, got {self.prediction.shape[-1]}."
            )
        if not torch.isfinite(self.prediction[self.masked]).all():
            raise UserError("model: some of its predictions are not finite numbers.")

    @property
    def single(self) -> bool:
        """One observation per place: every row hides the same tokens, and is answered alike but for rounding."""
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
            f"model: its output of shape {tuple(prediction.shape)} does not align with its input of "
            f"{tuple(masked.shape)} (rows, tokens). Allowed: one prediction per token."
        )


def leakage(sample: Sample) -> Leakage:
    """Every measure that needs nothing but predictions and targets."""
    targets = deviation(sample.target)
    if targets == 0:
        raise UserError("data: all targets are equal: there is nothing to predict, and nothing to leak.")
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
    """Mean squared error over masked tokens, over that of always saying the mean. A dead model has 1."""
    truth = sample.truth
    return float((sample.predicted - truth).pow(2).mean() / (truth - truth.mean(0)).pow(2).mean())


@dataclass(frozen=True)
class Excess:
    """A variance beyond that of noise."""

    value: float
    """0 where it does not exceed the limit"""
    limit: float
    """The smallest that would have been detected; 0 where there is no noise"""


def between_positions(sample: Sample) -> Excess:
    """Variance of predictions between positions.

    Where every row masks the same tokens and predictions differ between rows, that is noise: positions are then
    compared by their means over rows, less the noise that those contain.
    """
    if len(sample.prediction) > 1 and bool((sample.masked == sample.masked[:1]).all()):
        return _between_means(sample)
    return Excess(_within(sample) ** 2, 0.0)


def _within(sample: Sample) -> float:
    """Root mean square difference of a row's predictions from their mean."""
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
        alike = places % sample.stride == first
        count = int(alike.sum())
        if count > 1:
            # Noise that a row shares cancels between positions and must not be subtracted: rows are centred.
            centred = predicted[:, alike] - predicted[:, alike].mean(1, keepdim=True)
            deviations[:, alike] = centred * (count / (count - 1)) ** 0.5
    return beyond_noise(deviations)


def beyond_noise(draws: Tensor) -> Excess:
    """Mean square of what all draws (draws, …) have in common, if it is more than four of its standard errors.

    Products of different draws have no noise in their mean, however the noise of one draw is correlated within it. Four
    standard errors, since a model is measured often enough for two to come by chance.
    """
    flat = draws.flatten(1)
    products = flat @ flat.T / flat.shape[1]
    pairs = products[torch.ones_like(products, dtype=torch.bool).triu(1)]
    value, limit = float(pairs.mean()), 4 * float(pairs.std()) / len(pairs) ** 0.5
    return Excess(value if value > limit else 0.0, limit)


def correlation(values: Tensor, places: Tensor) -> float | None:
    """Mean |Pearson r| with position, (tokens,) or (tokens, several orders), over dimensions that vary."""
    places = places.view(len(places), -1).double()
    centred, place = values - values.mean(0), places - places.mean(0)
    norms, sizes = centred.norm(dim=0), place.norm(dim=0)
    vary = norms > 1e-12 * values.norm(dim=0).clamp(min=1e-300)
    if not vary.any() or (sizes == 0).any():
        return None
    return float(((centred[:, vary].T @ place) / (norms[vary, None] * sizes)).abs().mean())


def shuffled(places: Tensor, rows: Tensor, times: int, seed: int = 0) -> Tensor:
    """(tokens, times): positions as they might have been, had they nothing to do with what is predicted.

    In every row they are turned by a step of its own, as on a ring: neighbours stay neighbours, since their predictions
    are alike whether position leaks or not. In a single row there is nothing to compare with: they are exchanged.
    """
    generator = torch.Generator().manual_seed(seed)
    first, length = int(places.min()), int(places.max() - places.min()) + 1
    if len(rows.unique()) == 1:
        orders = [torch.randperm(len(places), generator=generator) for _ in range(times)]
        return torch.stack([places[order] for order in orders], 1).double()
    turns = torch.randint(length, (int(rows.max()) + 1, times), generator=generator)
    return ((places[:, None] - first + turns[rows]) % length + first).double()


def eta2(values: Tensor, places: Tensor) -> float | None:
    """Share of the variance that the place explains, whatever the shape; corrected for the number of places (ε²)."""
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
    """Mean cosine between two predictions of one row; centered: after the mean of all predictions is taken off."""
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
