"""Pixel grids, and the baselines of a field: interpolation with a fixed kernel and with a least-squares kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn import functional

Resampling = Literal["linear", "bicubic", "area"]
SIDE, RIDGE = 7, 1e-6
"""Of the fitted kernel"""


def line(count: int, device: torch.device | str | None = None) -> Tensor:
    return (torch.arange(count, device=device) + 0.5) / count


def grid(size: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """(pixels, k): the last axis runs fastest, as in memory."""
    return points([line(count, device) for count in size])


def points(axes: Sequence[Tensor]) -> Tensor:
    """(pixels, k), of the grid that the coordinates on each axis span."""
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)


def cell(size: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """(k,): the width of the cell of one pixel."""
    return 1 / torch.tensor(size, dtype=torch.float32, device=device)


def resize(x: Tensor, size: Sequence[int], kind: Resampling) -> Tensor:
    """Resize (rows, channels, *spatial) one axis after the other. Pixel centres lie at half steps.

    linear, bicubic: interpolation with edge pixels repeated; for enlarging only, because they alias otherwise.
    Bicubic is Keys' kernel with a = -0.75 as in torch; on photographs, a = -0.5 is 0.2 dB worse at ×2.
    area: mean over the area of each new pixel, at any ratio.
    """
    for axis, (old, new) in enumerate(zip(x.shape[2:], size, strict=True), 2):
        if old != new:
            last = x.movedim(axis, -1)
            last = _averaged(last, new) if kind == "area" else last @ _weights(old, new, kind).to(x).T
            x = last.movedim(-1, axis)
    return x.contiguous()


def _weights(old: int, new: int, kind: Resampling) -> Tensor:
    """(new, old): the weight of every old pixel in every new one."""
    if new < old:
        raise ValueError(f"{kind} would alias from {old} to {new} pixels: use area")
    place = (torch.arange(new, dtype=torch.float64) + 0.5) * (old / new) - 0.5
    taps = place.floor().long()[:, None] + torch.arange(-1, 3)
    distance = (place[:, None] - taps).abs()
    counts = _keys(distance) if kind == "bicubic" else (1 - distance).clamp(min=0)
    return torch.zeros(new, old, dtype=torch.float64).scatter_add_(1, taps.clamp(0, old - 1), counts)


def _averaged(x: Tensor, new: int) -> Tensor:
    """By differences of cumulative sums, whose cost does not depend on the ratio."""
    old = x.shape[-1]
    sums = functional.pad(x.double().cumsum(-1), (1, 0))
    edges = torch.arange(new + 1, device=x.device) * old
    below, part = edges // new, (edges % new).double() / new
    low, high = sums[..., below], sums[..., (below + 1).clamp(max=old)]
    return ((low + (high - low) * part).diff() * (new / old)).to(x.dtype)


def _keys(distance: Tensor, a: float = -0.75) -> Tensor:
    """Cubic convolution (Keys 1981), for distances below 2."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return torch.where(distance <= 1, near, far)


@dataclass(frozen=True)
class LeastSquaresKernel:
    """Least-squares linear upscaling of images by an integer: 7 × 7 pixels and a bias for each of the scale² phases.

    All channels share the kernel. Edge pixels are repeated.
    """

    kernel: Tensor
    """(scale², 7, 7), phases row by row"""
    bias: Tensor
    """(scale²,)"""

    @classmethod
    def fit(cls, low: Tensor, high: Tensor) -> Self:
        """Fit to images (rows, channels, h, w) and (rows, channels, scale * h, scale * w)."""
        scale, unknowns = high.shape[-1] // low.shape[-1], SIDE**2 + 1
        squares = torch.zeros(unknowns, unknowns, dtype=torch.float64)
        products = torch.zeros(unknowns, scale**2, dtype=torch.float64)
        targets = functional.pixel_unshuffle(high.flatten(0, 1)[:, None], scale)
        for padded, phases in zip(_padded(low), targets, strict=True):  # one by one: patches are large
            patches = padded[0].unfold(0, SIDE, 1).unfold(1, SIDE, 1).double().flatten(0, 1).flatten(1)
            patches = functional.pad(patches, (0, 1), value=1.0)
            squares += patches.T @ patches
            products += patches.T @ phases.double().flatten(1).T
        ridge = RIDGE * squares.diagonal().mean() * torch.eye(unknowns, dtype=torch.float64)
        solution = torch.linalg.solve(squares + ridge, products).T
        return cls(solution[:, :-1].unflatten(1, (SIDE, SIDE)), solution[:, -1])

    def __call__(self, low: Tensor) -> Tensor:
        phases = functional.conv2d(_padded(low), self.kernel[:, None].to(low), self.bias.to(low))
        high = functional.pixel_shuffle(phases, math.isqrt(len(self.bias)))
        return high.unflatten(0, low.shape[:2])[:, :, 0]


def _padded(low: Tensor) -> Tensor:
    return functional.pad(low.flatten(0, 1)[:, None], (SIDE // 2,) * 4, mode="replicate")
