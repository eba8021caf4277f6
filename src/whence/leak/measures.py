"""How much of the predictions of hidden tokens is position. What cannot be said is None, never 0.

At a ratio of 1 every example looks the same to a deterministic model: there is one prediction per place, so that any
difference at all is "explained by position". There the size of the differences counts, not their share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError

ROUNDING = 1e-4
"""Differences between predictions, over the deviation of the targets, that float32 alone may make in a deep model."""
SHUFFLES = 50


@dataclass(frozen=True)
class Sample:
    """What a model said about hidden tokens, and the truth."""

    prediction: Tensor
    """(rows, tokens, features)"""
    target: Tensor
    """(rows, tokens, outputs)"""
    hidden: Tensor
    """bool (rows, tokens)"""
    position: Tensor
    """(tokens,)"""

    def __post_init__(self) -> None:
        if self.prediction.ndim != 3 or self.prediction.shape[:2] != self.hidden.shape:
            raise UserError(
                f"model: its output of shape {tuple(self.prediction.shape)} does not align with its input of "
                f"{tuple(self.hidden.shape)} (rows, tokens). Allowed: one prediction per token.",
                field="model",
            )
        if not torch.isfinite(self.prediction[self.hidden]).all():
            raise UserError("model: some of its predictions are not finite numbers.", field="model")

    @property
    def single(self) -> bool:
        """One observation per place: every row hides the same tokens, and is answered alike but for rounding."""
        if not bool((self.hidden == self.hidden[:1]).all()):
            return False
        said = self.prediction[:, self.hidden[0]]
        return float((said - said[:1]).abs().max()) <= 1e-5 * float(said.abs().max())

    def alone(self) -> Sample:
        """Without the rows that say the same again."""
        return Sample(self.prediction[:1], self.target, self.hidden[:1], self.position) if self.single else self

    @property
    def rows(self) -> Tensor:
        """The row of every hidden token."""
        return torch.arange(len(self.hidden))[:, None].expand_as(self.hidden)[self.hidden]

    @property
    def places(self) -> Tensor:
        """The position of every hidden token."""
        return self.position.expand_as(self.hidden)[self.hidden]


def leakage(sample: Sample) -> dict[str, Any]:
    """Every measure that needs nothing but predictions and targets."""
    targets = deviation(sample.target)
    if targets == 0:
        raise UserError("data: all targets are equal: there is nothing to predict, and nothing to leak.", field="data")
    one = sample.alone()
    said = one.prediction[one.hidden].double()
    truth = sample.target[sample.hidden].double() if sample.target.shape[:2] == sample.hidden.shape else None
    equal = spread(one) <= ROUNDING * targets
    chance = None if equal else chance_correlation(said, one.places, one.rows)
    return {
        "error": error(sample),
        "spread": (spread(one) / targets) ** 2,
        "identical": equal,
        "correlation": None if equal else correlation(said, one.places),
        "correlation_chance": chance,
        "correlation_target": None if truth is None else correlation(truth, sample.places),
        "eta2": None if equal or one.single else eta2(said, one.places),
        "eta2_target": None if truth is None else eta2(truth, sample.places),
        "similarity": similarity(one, centred=False),
        "similarity_centred": None if equal else similarity(one, centred=True),
    }


def deviation(values: Tensor) -> float:
    """Root mean square distance from the mean over rows and tokens."""
    flat = values.flatten(0, -2).double()
    return float((flat - flat.mean(0)).pow(2).mean().sqrt())


def error(sample: Sample) -> float:
    """Mean squared error over hidden tokens, over that of always saying the mean. A dead model has 1."""
    truth = sample.target[sample.hidden].double()
    return float(
        (sample.prediction[sample.hidden].double() - truth).pow(2).mean() / (truth - truth.mean(0)).pow(2).mean()
    )


def spread(sample: Sample) -> float:
    """Root mean square difference of a row's predictions from their mean."""
    weights = sample.hidden[..., None].double()
    said = sample.prediction.double()
    counts = weights.sum(1, keepdim=True).clamp(min=1)
    middle = (said * weights).sum(1, keepdim=True) / counts
    return float((((said - middle) ** 2 * weights).sum() / (weights.sum() * said.shape[-1])).sqrt())


def correlation(values: Tensor, places: Tensor) -> float | None:
    """Mean |Pearson r| with position over dimensions that vary."""
    r = _correlations(values, places[:, None].double())
    return None if r is None else float(r.mean())


def chance_correlation(values: Tensor, places: Tensor, rows: Tensor) -> float | None:
    """What the same measure gives when positions are shuffled within rows."""
    r = _correlations(values, shuffled(places, rows, SHUFFLES))
    return None if r is None else float(r.mean())


def shuffled(places: Tensor, rows: Tensor, times: int, seed: int = 0) -> Tensor:
    """(tokens, times): positions, exchanged within every row."""
    generator = torch.Generator().manual_seed(seed)
    home = torch.argsort(rows, stable=True)
    columns = []
    for _ in range(times):
        luck = torch.rand(len(rows), generator=generator, dtype=torch.float64)
        order = torch.argsort(rows.double() + luck * 0.999)
        column = torch.empty_like(places, dtype=torch.float64)
        column[home] = places[order].double()
        columns.append(column)
    return torch.stack(columns, 1)


def _correlations(values: Tensor, places: Tensor) -> Tensor | None:
    centred, place = values - values.mean(0), places - places.mean(0)
    norms, sizes = centred.norm(dim=0), place.norm(dim=0)
    vary = norms > 1e-12 * values.norm(dim=0).clamp(min=1e-300)
    if not vary.any() or (sizes == 0).any():
        return None
    return ((centred[:, vary].T @ place) / (norms[vary, None] * sizes)).abs()


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


def similarity(sample: Sample, *, centred: bool) -> float | None:
    """Mean cosine between two predictions of one row; centred: after the mean of all predictions is taken off."""
    said = sample.prediction.double()
    if centred:
        said = said - said[sample.hidden].mean(0)
    unit = said / said.norm(dim=-1, keepdim=True).clamp(min=1e-300) * sample.hidden[..., None]
    counts = sample.hidden.sum(1).double()
    many = counts > 1
    if not many.any():
        return None
    pairs = (unit.sum(1).pow(2).sum(-1) - unit.pow(2).sum((1, 2)))[many]
    return float((pairs / (counts * (counts - 1))[many]).mean())
