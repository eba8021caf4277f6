"""How alike pictures are, or signals of one to three axes: (rows, channels, *size), peak 1; one value per row."""

from __future__ import annotations

import torch
from torch import Tensor

CAP = 100.0
"""dB of psnr that are the most: equal pictures would have infinitely many"""
SIGMA, RADIUS = 1.5, 5
"""Of the Gaussian window: cut off at 3.5 deviations"""
WINDOW = 2 * RADIUS + 1
C1, C2 = 0.01**2, 0.03**2


def psnr(said: Tensor, truth: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, `CAP` where there is less noise than that."""
    _check(said, truth)
    error = (said.double() - truth.double()).pow(2).flatten(1).mean(1)
    return -10 * error.clamp(min=10 ** (-CAP / 10)).log10()


def ssim(said: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity (Wang et al. 2004), 1 for equal pictures; mean over channels and all whole windows."""
    _check(said, truth)
    if min(said.shape[2:]) < WINDOW:
        raise ValueError(f"size {tuple(said.shape[2:])}: ssim needs {WINDOW} or more along every axis")
    x, y = said.double(), truth.double()
    mean_x, mean_y = _windowed(x), _windowed(y)
    variance_x, variance_y = _windowed(x * x) - mean_x**2, _windowed(y * y) - mean_y**2
    covariance = _windowed(x * y) - mean_x * mean_y
    brightness = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    structure = (2 * covariance + C2) / (variance_x + variance_y + C2)
    return (brightness * structure).flatten(1).mean(1)


def _check(said: Tensor, truth: Tensor) -> None:
    if said.shape != truth.shape or said.ndim not in (3, 4, 5):
        raise ValueError(
            f"shapes {tuple(said.shape)} and {tuple(truth.shape)}: both must be (rows, channels, *size) of 1 to 3 axes"
        )


def _windowed(x: Tensor) -> Tensor:
    """The Gaussian mean around every place that has a whole window."""
    offsets = torch.arange(-RADIUS, RADIUS + 1, dtype=x.dtype)
    weights = torch.softmax(-0.5 * (offsets / SIGMA) ** 2, 0).tolist()
    for axis in range(2, x.ndim):
        places = x.shape[axis] - 2 * RADIUS
        mean = weights[0] * x.narrow(axis, 0, places)
        for start, weight in enumerate(weights[1:], 1):
            mean.add_(x.narrow(axis, start, places), alpha=weight)
        x = mean
    return x
