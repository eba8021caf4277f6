"""Grids of pixels, and what a field must beat on them: resizing by a fixed kernel, and by the best kernel there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Self, get_args

import torch
from torch import Tensor
from torch.nn import functional

Resampling = Literal["linear", "bicubic", "area"]


def line(count: int, device: torch.device | str | None = None) -> Tensor:
    return (torch.arange(count, device=device) + 0.5) / count


def grid(size: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """(pixels, k): the last axis runs fastest, as in memory."""
    axes = torch.meshgrid(*(line(count, device) for count in size), indexing="ij")
    return torch.stack(axes, -1).flatten(0, -2)


def cell(size: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """(k,): how wide the cell of one pixel is."""
    return 1 / torch.tensor([float(count) for count in size], device=device)


def resize(x: Tensor, size: Sequence[int], kind: Resampling) -> Tensor:
    """(rows, channels, *spatial) at another size, one axis after the other. Centres of pixels lie at half steps.

    linear, bicubic: through the pixels (bicubic is Keys' with a = -0.75, as torch's, which is the stronger one on
    photographs: -0.5 stays .2 dB below it at twice the size), the outermost repeated beyond the edge. They
    would alias where there are to be fewer pixels, and refuse. area: the mean over what a new pixel covers of the
    old ones, at any ratio.
    """
    if kind not in get_args(Resampling):
        raise ValueError(f"kind {kind!r}: not one of {', '.join(get_args(Resampling))}")
    if len(size) != x.ndim - 2 or min(size, default=0) < 1:
        raise ValueError(f"size {tuple(size)}: not one of 1 or more for every axis of {tuple(x.shape[2:])}")
    for axis, (old, new) in enumerate(zip(x.shape[2:], size, strict=True), 2):
        if old != new and kind == "area":
            x = _averaged(x, axis, new)
        elif old != new:
            weights = _weights(old, new, kind).to(x)
            x = (x.movedim(axis, -1) @ weights.T).movedim(-1, axis)
    return x.contiguous()


def _weights(old: int, new: int, kind: Resampling) -> Tensor:
    """(new, old): what every old pixel counts for in every new one."""
    if new < old:
        raise ValueError(f"{kind} would alias from {old} to {new} pixels: use area")
    place = (torch.arange(new, dtype=torch.float64) + 0.5) * (old / new) - 0.5
    taps = place.floor().long()[:, None] + torch.arange(-1, 3)
    distance = (place[:, None] - taps).abs()
    counts = _keys(distance) if kind == "bicubic" else (1 - distance).clamp(min=0)
    return torch.zeros(new, old, dtype=torch.float64).scatter_add_(1, taps.clamp(0, old - 1), counts)


def _averaged(x: Tensor, axis: int, new: int) -> Tensor:
    """By differences of sums from the beginning, whose cost does not grow with how much is averaged."""
    old = x.shape[axis]
    sums = x.double().cumsum(axis)
    sums = torch.cat([torch.zeros_like(sums.narrow(axis, 0, 1)), sums], axis)
    edges = torch.arange(new + 1, device=x.device) * old
    below, part = edges // new, (edges % new).double() / new
    shape = [-1 if place == axis else 1 for place in range(x.ndim)]
    low, high = sums.index_select(axis, below), sums.index_select(axis, (below + 1).clamp(max=old))
    return ((low + (high - low) * part.view(shape)).diff(dim=axis) * (new / old)).to(x.dtype)


def _keys(distance: Tensor, a: float = -0.75) -> Tensor:
    """Cubic convolution (Keys 1981), for distances below 2."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return torch.where(distance <= 1, near, far)


class LeastSquaresKernel:
    """The best linear upscaling of images by a whole number: 7 x 7 pixels and a bias for each of the scale² phases.

    All channels share it. Beyond the edge, the outermost pixels are repeated.
    """

    SIDE = 7
    RIDGE = 1e-6
    STRIP = 2**16  # low pixels at a time, so that the patches of large images fit in memory

    scale: int = 0
    kernel: Tensor
    """(scale², 7, 7), phases row by row"""
    bias: Tensor
    """(scale²,)"""

    @torch.no_grad()
    def fit(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Self:
        """From batches of (rows, channels, h, w) and (rows, channels, scale * h, scale * w)."""
        unknowns = self.SIDE**2 + 1
        scale, squares, products = 0, torch.zeros(unknowns, unknowns, dtype=torch.float64), torch.zeros(0)
        for low, high in pairs:
            this_scale = _scale(low, high)
            if scale not in (0, this_scale):
                raise ValueError(f"scales {scale} and {this_scale}: one at a time")
            if not scale:
                scale, products = this_scale, torch.zeros(unknowns, this_scale**2, dtype=torch.float64)
            for patches, phases in self._strips(low.cpu(), high.cpu(), scale):
                squares += patches.T @ patches
                products += patches.T @ phases
        if not scale:
            raise ValueError("no pairs to fit to")
        ridge = self.RIDGE * squares.diagonal().mean() * torch.eye(unknowns, dtype=torch.float64)
        solution = torch.linalg.solve(squares + ridge, products).T
        self.scale = scale
        self.kernel, self.bias = solution[:, :-1].unflatten(1, (self.SIDE, self.SIDE)), solution[:, -1]
        return self

    def _strips(self, low: Tensor, high: Tensor, scale: int) -> Iterable[tuple[Tensor, Tensor]]:
        """(pixels, 49 + 1) of low patches, and (pixels, scale²) of what was there."""
        height = max(self.STRIP // low.shape[-1], 1)
        targets = functional.pixel_unshuffle(high.flatten(0, 1)[:, None], scale)
        for padded, phases in zip(self._padded(low), targets, strict=True):
            patches = padded[0].unfold(0, self.SIDE, 1).unfold(1, self.SIDE, 1)
            for top in range(0, patches.shape[0], height):
                strip = patches[top : top + height].double().flatten(0, 1).flatten(1)
                yield functional.pad(strip, (0, 1), value=1.0), phases[:, top : top + height].double().flatten(1).T

    def _padded(self, low: Tensor) -> Tensor:
        return functional.pad(low.flatten(0, 1)[:, None], (self.SIDE // 2,) * 4, mode="replicate")

    def __call__(self, low: Tensor) -> Tensor:
        if not self.scale:
            raise ValueError("not fitted yet")
        phases = functional.conv2d(self._padded(low), self.kernel[:, None].to(low), self.bias.to(low))
        return functional.pixel_shuffle(phases, self.scale).unflatten(0, low.shape[:2])[:, :, 0]


def _scale(low: Tensor, high: Tensor) -> int:
    scale = high.shape[-1] // max(low.shape[-1], 1)
    if low.ndim != 4 or not high.numel() or high.shape != (*low.shape[:2], *(scale * n for n in low.shape[2:])):
        raise ValueError(f"shapes {tuple(low.shape)} and {tuple(high.shape)}: not an image and a whole multiple of it")
    return scale
