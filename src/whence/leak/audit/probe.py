"""Probes for position: ridge regression, cross-validated over whole rows, with a permutation test."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from whence.errors import UserError
from whence.leak.audit.measures import Sample, shuffled
from whence.leak.masks import distances
from whence.leak.metrics import PositionProbe

FOLDS = 5
SHUFFLES = 99
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Ridge penalties divided by the number of examples; each fit selects one by generalized cross-validation (GCV)."""
MOST = 1000
"""Largest number of tokens that a probe is fitted on."""


def shapes(places: Tensor, length: float) -> dict[str, Tensor]:
    """Functions of position to decode: a linear probe of position itself misses a parabola or an edge."""
    t = places.double()
    middle = (length - 1) / 2
    return {
        "linear": t,
        "quadratic": (t - middle) ** 2,
        "edge at start": torch.exp(-t / 2),
        "edge at end": torch.exp(-(length - 1 - t) / 2),
    }


def probe(sample: Sample, values: Tensor | None = None) -> PositionProbe | None:
    """Probe the predictions of masked tokens, or other `values` there (rows, tokens, features)."""
    some = sample.head(1 if sample.single else _enough(sample))
    features = some.predicted if values is None else values[: len(some.masked)][some.masked].double()
    return decode(features, some.places, some.rows)


def pattern_r2(sample: Sample, inner: slice = slice(None)) -> float | None:
    """R² of position from the mask pattern alone, which is available to a model without position information, too.

    `inner` excludes the tokens at the ends that are always visible. None where no other token is visible.
    """
    visible = torch.zeros_like(sample.masked)
    visible[:, inner] = ~sample.masked[:, inner]
    if not bool(visible.any()):
        return None
    before, after = (d.double() for d in distances(visible))
    count = visible.cumsum(1).double()
    features = [before, after, before == 0, after == 0, count, count[:, -1:] - count]
    features += [(1 + before).log(), (1 + after).log()]
    decoded = probe(sample, torch.stack([feature.double() for feature in features], -1))
    return decoded and decoded.best


def decode(features: Tensor, places: Tensor, rows: Tensor) -> PositionProbe | None:
    """None where the features do not vary. Folds are made of rows, or of places where there is one row only."""
    kinds = places.unique()
    if len(kinds) < FOLDS:
        raise UserError(
            f"positions: expected {FOLDS} or more masked positions, for a {FOLDS}-fold cross-validation, got "
            f"{len(kinds)}. Pass longer examples or a larger mask ratio."
        )
    if not (features - features.mean(0)).abs().max() > 0:
        return None
    group = places if len(rows.unique()) == 1 else rows
    folds = torch.searchsorted(group.unique(), group) % FOLDS
    length = float(kinds.max() - kinds.min() + 1)
    start = places - kinds.min()
    true = shapes(start, length)
    null = [column for t in shuffled(start, rows, SHUFFLES).unbind(1) for column in shapes(t, length).values()]
    targets = torch.stack([*true.values(), *null, *(_relabelled(start, seed) for seed in range(5))], 1)
    predicted = _cross_validated(features, targets, folds, _full_map)
    r2 = 1 - (predicted - targets).pow(2).sum(0) / (targets - targets.mean(0)).pow(2).sum(0)
    decoded, chance = r2[: len(true)], r2[len(true) : -5].view(SHUFFLES, len(true)).max(1).values
    best = int(decoded.argmax())
    return PositionProbe(
        r2=float(decoded[0]),
        mae=float((predicted[:, 0] - targets[:, 0]).abs().mean()),
        best=float(decoded[best]),
        shape=list(true)[best],
        control=float(r2[-5:].mean()),
        p=(1 + int((chance >= decoded[best]).sum())) / (1 + SHUFFLES),
    )


def fitted_error(sample: Sample) -> float:
    """Normalized MSE of a linear map from prediction to target, cross-validated over rows.

    The better of two maps: one factor for all dimensions, which can be estimated from few rows, and a full matrix.
    """
    some = sample.head(_enough(sample))
    predicted, truth = some.predicted, some.truth
    if not (predicted - predicted.mean(0)).abs().max() > 0:
        return 1.0
    mapped = [_cross_validated(predicted, truth, some.rows % FOLDS, solve) for solve in (_one_factor, _full_map)]
    return min(float((one - truth).pow(2).sum() / (truth - truth.mean(0)).pow(2).sum()) for one in mapped)


def _enough(sample: Sample) -> int:
    """Number of rows with as many masked tokens as a probe is fitted on."""
    return max(FOLDS, MOST // max(1, int(sample.masked[0].sum())))


def _relabelled(places: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randperm(int(places.max()) + 1, generator=generator).double()
    return labels[places.long()]


def _cross_validated(
    features: Tensor, targets: Tensor, folds: Tensor, solve: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    predicted = torch.empty_like(targets)
    for fold in folds.unique():
        test, train = folds == fold, folds != fold
        mean = features[train].mean(0)
        x, y = features - mean, targets[train] - targets[train].mean(0)
        predicted[test] = targets[train].mean(0) + x[test] @ solve(x[train], y)
    return predicted


def _one_factor(x: Tensor, y: Tensor) -> Tensor:
    factor = (x * y).sum() / x.pow(2).sum().clamp(min=1e-300)
    return factor * torch.eye(x.shape[1], dtype=x.dtype)


def _full_map(x: Tensor, y: Tensor) -> Tensor:
    scale = x.std(0).clamp(min=1e-12)
    return _ridge(x / scale, y) / scale[:, None]


def _ridge(x: Tensor, y: Tensor) -> Tensor:
    """Coefficients for every target, each with the penalty that generalized cross-validation selects."""
    n, wide = len(x), x.shape[1] > len(x)
    # An eigendecomposition of the smaller Gram matrix is far cheaper than a singular value decomposition.
    squares, basis = torch.linalg.eigh(x @ x.T if wide else x.T @ x)
    squares = squares.clamp(min=1e-9 * float(squares.max()))
    within = basis.T @ y if wide else (basis.T @ (x.T @ y)) / squares.sqrt()[:, None]
    outside = (y.pow(2).sum(0) - within.pow(2).sum(0)).clamp(min=0)
    shrunk = [squares / (squares + strength * n) for strength in STRENGTHS]
    rests = [outside + ((1 - factor)[:, None] * within).pow(2).sum(0) for factor in shrunk]
    scores = [rest / max(1e-9, n - 1 - float(f.sum())) ** 2 for rest, f in zip(rests, shrunk, strict=True)]
    choice = torch.stack(scores).argmin(0)
    fitted = torch.stack(shrunk)[choice].T * within / squares.sqrt()[:, None]
    return x.T @ (basis @ (fitted / squares.sqrt()[:, None])) if wide else basis @ fitted
