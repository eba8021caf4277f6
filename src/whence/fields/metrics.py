"""Similarity of signals with one to three axes, and the metrics of an evaluation.

Signals are (rows, channels, *size) with peak 1; a measure returns one value per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from whence.config import Config
from whence.training.config import Metrics

CAP = 100.0
"""Largest PSNR in dB; equal signals would have infinite PSNR"""
SIGMA, RADIUS = 1.5, 5
"""Of the Gaussian window, truncated at 3.5 standard deviations"""
WINDOW = 2 * RADIUS + 1
C1, C2 = 0.01**2, 0.03**2


def psnr(predicted: Tensor, truth: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, at most `CAP`."""
    _check(predicted, truth)
    error = (predicted.double() - truth.double()).pow(2).flatten(1).mean(1)
    return -10 * error.clamp(min=10 ** (-CAP / 10)).log10()


def ssim(predicted: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity (Wang et al. 2004), 1 for equal signals; mean over channels and all complete windows.

    Raises ValueError for signals smaller than one window."""
    _check(predicted, truth)
    if min(predicted.shape[2:]) < WINDOW:
        raise ValueError(f"size {tuple(predicted.shape[2:])}: ssim requires {WINDOW} or more along every axis")
    x, y = predicted.double(), truth.double()
    mean_x, mean_y = _windowed(x), _windowed(y)
    variance_x, variance_y = _windowed(x * x) - mean_x**2, _windowed(y * y) - mean_y**2
    covariance = _windowed(x * y) - mean_x * mean_y
    brightness = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    structure = (2 * covariance + C2) / (variance_x + variance_y + C2)
    return (brightness * structure).flatten(1).mean(1)


def _check(predicted: Tensor, truth: Tensor) -> None:
    if predicted.shape != truth.shape or predicted.ndim not in (3, 4, 5):
        raise ValueError(
            f"shapes {tuple(predicted.shape)} and {tuple(truth.shape)}: both must be (rows, channels, *size) of 1 to 3 "
            "axes"
        )


def _windowed(x: Tensor) -> Tensor:
    """The Gaussian mean around every position that has a complete window."""
    offsets = torch.arange(-RADIUS, RADIUS + 1, dtype=x.dtype)
    weights = torch.softmax(-0.5 * (offsets / SIGMA) ** 2, 0).tolist()
    for axis in range(2, x.ndim):
        places = x.shape[axis] - 2 * RADIUS
        mean = weights[0] * x.narrow(axis, 0, places)
        for start, weight in enumerate(weights[1:], 1):
            mean.add_(x.narrow(axis, start, places), alpha=weight)
        x = mean
    return x


# --- metrics of an evaluation


class _Numbers(Config):
    model_config = ConfigDict(allow_inf_nan=True)  # the trainer names the value that is not finite


class MethodQuality(_Numbers):
    """Quality of the output of one method, mean over signals."""

    psnr: float
    """dB"""
    ssim: float | None = None
    """None for signals smaller than its window"""
    above: dict[str, float] = Field(default_factory=dict)
    """By baseline, the share of signals with a higher PSNR than the baseline. Empty for baselines themselves"""


class ScaleQuality(_Numbers):
    """At one scale, the outputs of the model and, at scales above 1, the baselines."""

    scale: int
    field: MethodQuality
    render: MethodQuality | None = None
    linear: MethodQuality | None = None
    bicubic: MethodQuality | None = None
    kernel: MethodQuality | None = None

    @property
    def methods(self) -> dict[str, MethodQuality]:
        """By name, those that were evaluated."""
        return {name: quality for name, quality in self if isinstance(quality, MethodQuality)}


OUTPUTS = ("field", "render")
METHODS = (*OUTPUTS, "linear", "bicubic", "kernel")


def methods_in(scales: Sequence[ScaleQuality]) -> list[str]:
    return [name for name in METHODS if any(name in quality.methods for quality in scales)]


class SwapQuality(_Numbers):
    """PSNR of the field at ×1, with the position tokens of another signal and with its own."""

    psnr: float
    own: float


class Diversity(_Numbers):
    """1 − mean cosine similarity between the position tokens of one signal, raw and after mean-centering."""

    raw: float
    centred: float


class SplitMetrics(_Numbers):
    """On the held-out signals of one split."""

    scales: list[ScaleQuality]
    """In increasing order, from 1"""
    swap: SwapQuality
    diversity: Diversity


class FieldsMetrics(Metrics):
    """Choose designs on validation, report test."""

    validation: SplitMetrics
    test: SplitMetrics


def quality(predicted: Tensor, truth: Tensor, baseline_psnr: Mapping[str, Tensor] = {}) -> MethodQuality:
    """Means over signals, and the share of signals on which the PSNR exceeds each baseline."""
    values = psnr(predicted, truth)
    similarity = float(ssim(predicted, truth).mean()) if min(truth.shape[2:]) >= WINDOW else None
    above = {name: float((values > other).double().mean()) for name, other in baseline_psnr.items()}
    return MethodQuality(psnr=float(values.mean()), ssim=similarity, above=above)
