"""The practical upscaler: the enlarged input, corrected from local features and position tokens."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whence.fields.attention import products
from whence.models.layers import Linear

LINEAR = 7
"""Pixels per axis that a linear path covers, the same for every channel: what a fitted kernel does, this can do."""
COSINES = 4
"""Per axis and input pixel: as many as phases in the largest enlargement that is trained."""
AROUND = 5
"""Pixels per axis over which contrast is measured."""
FAINT = 0.01
"""Contrast, in deviations of values, below which it is no longer evened out: half a step of 8 bits or so."""
NEGLIGIBLE = 2e-5
"""A squared error that counts as none: a quarter of a step of 8 bits."""
TRUST = 0.5
"""Share of the nonlinear correction that is applied. Whole, it is a little better on average, but above the best linear
kernel on fewer images: what it learnt of some overshoots on others. Chosen on validation images, by one seed."""


class ResidualRender(nn.Module):
    """Bicubic interpolation plus corrections that every input pixel holds of its own surroundings.

    Linear: as a fitted kernel. Nonlinear: what a network adds to that. Its input is the surroundings at even
    contrast, and its output is scaled back: as with anything linear, a fainter image gets a fainter correction.
    """

    def __init__(self, axes: int, channels: int, width: int, layers: int) -> None:
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
        self.axes, self.channels = axes, channels
        self.enter = conv(channels, width, 5, padding=2, padding_mode="replicate")
        # the name stays: initial weights derive from it
        self.told = Linear(channels, width, scale=0.1)
        self.body = nn.ModuleList(conv(width, width, 3, padding=1, padding_mode="replicate") for _ in range(layers))
        self.leave = nn.Parameter(torch.empty(width, COSINES**axes * channels))
        self.linear = conv(1, COSINES**axes, LINEAR, padding=LINEAR // 2, padding_mode="replicate", bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.leave)  # it starts as the enlarged input
        nn.init.zeros_(self.linear.weight)

    def features(self, x: Tensor, field: Tensor) -> Tensor:
        """x: (rows, channels, *size) around 0. field: (rows, pixels, …) → (rows, pixels, cosines^k · channels)."""
        return self._linear_features(x) + TRUST * self._nonlinear_features(x, field)

    def _linear_features(self, x: Tensor) -> Tensor:
        features = self.linear(x.flatten(0, 1)[:, None]).unflatten(0, x.shape[:2]).flatten(3)
        return features.permute(0, 3, 2, 1).flatten(2)  # from rows, channels, cosines^k, pixels

    def _nonlinear_features(self, x: Tensor, field: Tensor) -> Tensor:
        mean = self._around(x)
        contrast = (self._around(x * x) - mean.square()).clamp(min=0).mean(1, keepdim=True)
        contrast = (contrast + FAINT**2).sqrt()
        field = ((field.mT.unflatten(-1, x.shape[2:]) - mean) / contrast).clamp(-4, 4)
        h = self.enter((x - mean) / contrast) + self.told(field.flatten(2).mT).mT.unflatten(-1, x.shape[2:])
        for layer in self.body:
            h = h + layer(F.gelu(h))
        return F.gelu(h).flatten(2).mT @ self.leave * contrast.flatten(2).mT

    def _around(self, x: Tensor) -> Tensor:
        """Means over the surroundings of every pixel."""
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[self.axes - 1]
        return pool(F.pad(x, (AROUND // 2,) * (2 * self.axes), mode="replicate"), AROUND, stride=1)

    def loss(self, x: Tensor, field: Tensor, at: Tensor, cell: Tensor, truth: Tensor) -> Tensor:
        """Of each correction, what it leaves of the error of interpolation, signal by signal.

        A share, so that smooth images count as much as busy ones. The linear one learns as if it were alone.
        """
        missing = truth - enlarged(x, at)
        before = missing.square().mean((1, 2)) + NEGLIGIBLE
        linear = self._linear_features(x)
        both = torch.stack([linear, linear.detach() + self._nonlinear_features(x, field)])
        corrections = self._correction(x.shape[2:], both.flatten(0, 1), at, cell).unflatten(0, (2, -1))
        return ((corrections - missing).square().mean((2, 3)) / before).mean(1).sum()

    def forward(self, x: Tensor, features: Tensor, at: Tensor, cell: Tensor) -> Tensor:
        """The input enlarged, and corrected, at the coordinates: (rows, pixels, channels)."""
        return enlarged(x, at) + self._correction(x.shape[2:], features, at, cell)

    def _correction(self, size: torch.Size, features: Tensor, at: Tensor, cell: Tensor) -> Tensor:
        """Of the 2^k nearest input pixels, weighed linearly, each one's expansion."""
        rows, counts = len(features), torch.tensor(list(size), device=at.device)
        strides = torch.tensor([size[axis + 1 :].numel() for axis in range(self.axes)], device=at.device)
        place = at * counts - 0.5
        total = torch.zeros(rows, at.shape[1], self.channels, device=at.device, dtype=features.dtype)
        for offset in itertools.product((0, 1), repeat=self.axes):
            corner = place.floor() + torch.tensor(offset, device=at.device)
            weight = (1 - (place - corner).abs()).prod(-1)
            index = (corner.long().clamp(min=0).minimum(counts - 1) * strides).sum(-1).expand(rows, -1)
            basis = _cosines(place - corner, cell * counts)  # rows or 1, pixels, cosines^k
            expansion = features.gather(1, index[..., None].expand(-1, -1, features.shape[-1]))
            expansion = expansion.unflatten(-1, (-1, self.channels))
            total = total + torch.einsum("rpb,rpbc->rpc", (weight[..., None] * basis).expand(rows, -1, -1), expansion)
        return total


def _cosines(near: Tensor, cell: Tensor) -> Tensor:
    """Over two pixels' distance, averaged over the cell."""
    order = torch.arange(COSINES, device=near.device)
    return products(
        torch.cos(torch.pi * (near[..., axis, None] + 1) / 2 * order) * torch.sinc(order * cell[axis] / 4)
        for axis in range(near.shape[-1])
    )


def enlarged(x: Tensor, at: Tensor) -> Tensor:
    """Interpolation of (rows, channels, *size) at coordinates: bicubic in one and two dimensions, linear in three."""
    rows, axes = len(x), at.shape[-1]
    at = 2 * at.expand(rows, -1, -1).flip(-1) - 1  # grid_sample wants the fastest axis first
    if axes == 1:
        x, at = x[..., None, :], torch.cat([at, torch.zeros_like(at)], -1)
    where = at[:, :, None] if axes < 3 else at[:, :, None, None]
    mode = "bicubic" if axes < 3 else "bilinear"
    values = F.grid_sample(x, where, mode=mode, padding_mode="border", align_corners=False)
    return values.flatten(2).mT
