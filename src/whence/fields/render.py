"""The residual render, a practical upscaler: bicubic interpolation plus corrections from local features."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whence.fields.attention import products
from whence.models.layers import Linear

LINEAR = 7
"""Size of the linear filter in pixels, shared by all channels; as large as the least-squares baseline kernel"""
COSINES = 4
"""Cosines per axis and input pixel: the number of phases of the largest trained scale"""
AROUND = 5
"""Size of the window over which contrast is measured, in pixels"""
FAINT = 0.01
"""Smallest contrast that is normalized, in standard deviations of values: about half an 8-bit level"""
NEGLIGIBLE = 2e-5
"""A negligible squared error: that of a quarter of an 8-bit level"""
TRUST = 0.5
"""Share of the nonlinear correction that is applied. With 1.0 the mean is slightly better, but fewer images exceed the
least-squares kernel, because the correction overshoots on some. Chosen on validation images with one seed."""


class ResidualRender(nn.Module):
    """Bicubic interpolation plus a linear and a nonlinear correction, predicted at every input pixel.

    The linear correction is a filter. The nonlinear one is a network on contrast-normalized input, whose output is
    scaled back by the contrast: scaling an image scales its correction.
    """

    def __init__(self, axes: int, channels: int, width: int, layers: int) -> None:
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
        self.axes, self.channels = axes, channels
        self.enter = conv(channels, width, 5, padding=2, padding_mode="replicate")
        # renaming it would change the initial weights, whose seed is derived from the name
        self.told = Linear(channels, width, scale=0.1)
        self.body = nn.ModuleList(conv(width, width, 3, padding=1, padding_mode="replicate") for _ in range(layers))
        self.leave = nn.Parameter(torch.empty(width, COSINES**axes * channels))
        self.linear = conv(1, COSINES**axes, LINEAR, padding=LINEAR // 2, padding_mode="replicate", bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.leave)  # the initial output is the interpolated input
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
        """Local mean around every pixel."""
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[self.axes - 1]
        return pool(F.pad(x, (AROUND // 2,) * (2 * self.axes), mode="replicate"), AROUND, stride=1)

    def loss(self, x: Tensor, field: Tensor, at: Tensor, cell: Tensor, truth: Tensor) -> Tensor:
        """Remaining share of the squared error of interpolation, per signal, for each correction.

        As a share, so that smooth images count as much as detailed ones. The linear correction gets no gradient
        from the nonlinear one.
        """
        missing = truth - enlarged(x, at)
        before = missing.square().mean((1, 2)) + NEGLIGIBLE
        linear = self._linear_features(x)
        both = torch.stack([linear, linear.detach() + self._nonlinear_features(x, field)])
        corrections = self._correction(x.shape[2:], both.flatten(0, 1), at, cell).unflatten(0, (2, -1))
        return ((corrections - missing).square().mean((2, 3)) / before).mean(1).sum()

    def forward(self, x: Tensor, features: Tensor, at: Tensor, cell: Tensor) -> Tensor:
        """The interpolated and corrected input at the coordinates: (rows, pixels, channels)."""
        return enlarged(x, at) + self._correction(x.shape[2:], features, at, cell)

    def _correction(self, size: torch.Size, features: Tensor, at: Tensor, cell: Tensor) -> Tensor:
        """Linear interpolation between the expansions of the 2^k nearest input pixels."""
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
    """Cosines with a support of two pixels, averaged over the cell."""
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
