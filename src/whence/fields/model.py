"""A field model: learnable position tokens and a bidirectional mixer, decoded at any resolution (MAMBA-GINR)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from whence.encodings.base import Encoding
from whence.encodings.position_tokens import PositionTokens
from whence.fields.attention import Attended, Encoded, FieldShape, Hyponet
from whence.fields.baselines import cell, grid
from whence.fields.config import FieldModelConfig
from whence.fields.render import ResidualRender
from whence.models.layers import FeatureEmbedding
from whence.models.sequence import Block

PIXELS_AT_ONCE = 2048
"""Pixels per block when decoding; with 64 position tokens, attention weights then take about 30 MB"""
MEAN, STD = 0.5, 0.25
"""Inputs are standardised by these constants."""


class FieldModel(nn.Module):
    """encode: signal → position tokens. field: decode them alone. render: correct the enlarged input.

    `whence.fields.load` returns a trained one.

    Example:
        >>> from whence.fields.config import FieldModelConfig
        >>> model = whence.fields.FieldModel(FieldModelConfig(d_model=16, lps=8), channels=3, size=(16, 16))
        >>> encoded = model.encode(torch.rand(2, 3, 16, 16))
        >>> coordinates = torch.rand(1, 100, 2)  # anywhere in [0, 1]²
        >>> model.field(encoded, coordinates, torch.tensor([1 / 64, 1 / 64])).shape  # (batch, coordinates, channels)
        torch.Size([2, 100, 3])
    """

    def __init__(self, config: FieldModelConfig, channels: int, size: tuple[int, ...], draw: int = 0) -> None:
        """For inputs of `size` pixels; `draw` selects random placements. Raises ValueError for impossible options."""
        super().__init__()
        if config.mixer.name == "attention" and config.d_model % config.heads:
            raise ValueError(f"heads: {config.heads} does not divide d_model={config.d_model}.")
        if any(count % config.patch for count in size):
            raise ValueError(f"patch: {config.patch} does not divide the input of {'×'.join(map(str, size))} pixels.")
        if unsupported_hooks := sorted({*config.encoding.variant.hooks()} - {*config.mixer.variant.hooks}):
            raise ValueError(
                f"encoding: {config.encoding} enters through {', '.join(unsupported_hooks)}, which {config.mixer} does "
                "not support. Allowed with bimamba: none, sinusoidal, learned."
            )
        self.config, self.channels, self.size = config, channels, size
        self.counts = tuple(count // config.patch for count in size)
        self.shape = FieldShape(config.d_model, config.lps, len(size), channels, max(size))
        axes, tokens = len(size), math.prod(self.counts)
        self.embedding = FeatureEmbedding(channels * config.patch**axes, config.d_model)
        self.positions = PositionTokens(
            config.d_model,
            count=config.lps,
            placement=config.placement,
            groups=config.groups,
            conditional=config.conditional,
            draw=draw,
        )
        self.encoding: Encoding = config.encoding.build(
            d_model=config.d_model,
            heads=config.heads,
            head_dim=config.d_model // config.heads,
            causal=config.kind == "causal",
            train_length=tokens,
            max_length=tokens,
        )
        if self.encoding.axes not in (1, axes):
            raise ValueError(
                f"encoding: {config.encoding} has {self.encoding.axes} axes of position, but the signal has {axes}."
            )
        self.blocks = nn.ModuleList(Block(cast(Any, config)) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.hyponet: Hyponet = config.hyponet.build(shape=self.shape)
        if isinstance(self.hyponet, Attended):
            self.hyponet.nearness.reach.copy_(self.positions.reach(axes))
        width, layers = config.render_width, config.render_layers
        self.renderer = ResidualRender(axes, channels, width, layers) if width else None

    def encode(self, x: Tensor) -> Encoded:
        """x: (rows, channels, *size), values from 0 to 1."""
        order = scan_order(self.counts, serpentine=self.config.order == "serpentine").to(x.device)
        tokens = self.embedding(_patches(_standardised(x), self.config.patch)[:, order])
        places = torch.arange(len(order), device=x.device)[None]
        tokens = self.encoding.embed(tokens, places)
        merged, along, interleaving = self.positions.interleave(tokens, places)
        coordinates = grid(self.counts, x.device)[order][None]
        # the mean of the neighbouring patches, or the nearest patch where the scan jumps to a new row
        between, nearest = interleaving.between(coordinates), interleaving.nearest(coordinates)
        apart = (between - nearest).abs() > 0.51 * cell(self.counts, x.device)
        locations = torch.where(apart.any(-1, keepdim=True), nearest, between)
        if self.encoding.axes > 1:  # position in the grid, in tokens, instead of the index in the scan
            along = interleaving.merge(coordinates, locations) * torch.tensor(self.counts, device=x.device)
        context = self.config.mixer.variant.contexts([self.encoding], along, self.config.kind)[0]
        for block in self.blocks:
            merged = block(merged, context)
        lps = self.positions.extract(self.norm(merged), interleaving)
        return Encoded(lps, locations.to(lps.dtype), self.positions.selected)

    def field(self, encoded: Encoded, at: Tensor, width: Tensor, query: Tensor | None = None) -> Tensor:
        """Decode the position tokens alone. at: (rows or 1, pixels, k) → (rows, pixels, channels).

        query: the coordinates that attend to the tokens, if they differ from `at`.
        """
        return self.hyponet(encoded, at, width, at if query is None else query) * STD + MEAN

    def rendering(self, x: Tensor, encoded: Encoded) -> Callable[[Tensor, Tensor], Tensor]:
        """A function from coordinates and cells to values. Features that all coordinates share are computed here."""
        renderer, x, field = self._renderer(x, encoded)
        features = renderer.features(x, field)
        return lambda at, width: renderer(x, features, at, width) * STD + MEAN

    def render_loss(self, x: Tensor, encoded: Encoded, at: Tensor, width: Tensor, truth: Tensor) -> Tensor:
        renderer, x, field = self._renderer(x, encoded)
        return renderer.loss(x, field, at, width, _standardised(truth))

    def _renderer(self, x: Tensor, encoded: Encoded) -> tuple[ResidualRender, Tensor, Tensor]:
        """The renderer, the input and the field at its pixels, standardised. The render does not train the field."""
        assert self.renderer is not None
        width, pixels = cell(self.size, x.device), grid(self.size, x.device)[None].split(PIXELS_AT_ONCE, 1)
        with torch.no_grad():
            field = torch.cat([self.hyponet(encoded, at, width, at) for at in pixels], 1)
        return self.renderer, _standardised(x), field


def _standardised(x: Tensor) -> Tensor:
    return (x - MEAN) / STD


def _patches(x: Tensor, patch: int) -> Tensor:
    """(rows, channels, *size) → (rows, tokens, channels · patch^k), row-major."""
    axes = x.ndim - 2
    for axis in range(axes):
        x = x.unflatten(2 + 2 * axis, (-1, patch))
    outer, inner = range(2, 2 + 2 * axes, 2), range(3, 3 + 2 * axes, 2)
    return x.permute(0, *outer, 1, *inner).flatten(1, axes).flatten(2)


def scan_order(size: Sequence[int], *, serpentine: bool) -> Tensor:
    """(pixels,): grid indices in scan order. Serpentine reverses every other row, so that every step is short."""
    order = passed = torch.zeros(math.prod(size), dtype=torch.long)
    for index, count in zip(torch.unravel_index(torch.arange(len(order)), size), size, strict=True):
        back = (passed % 2 == 1) & serpentine  # after an odd number of lines
        order = order * count + torch.where(back, count - 1 - index, index)
        passed = passed + index
    return order
