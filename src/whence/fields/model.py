"""Learnable position tokens + a bidirectional mixer → a signal at any resolution (MAMBA-GINR)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.config import Config
from whence.encodings import ENCODINGS, EncodingChoice
from whence.encodings._interleaving import Interleaving
from whence.encodings.base import Encoding
from whence.encodings.position_tokens import Placement, PositionTokens
from whence.fields.baselines import cell, grid
from whence.fields.hyponets import HYPONETS, HyponetChoice
from whence.fields.hyponets.base import Attended, Hyponet
from whence.fields.render import ResidualRender
from whence.mixers import MIXERS, MixerChoice
from whence.mixers.base import Kind
from whence.models.layers import FeatureEmbedding
from whence.models.sequence import Block

AT_ONCE = 2048
"""Points that are asked for together: at 64 position tokens, some 30 MB of weights."""
MIDDLE, SPREAD = 0.5, 0.25
"""What values are centred by and divided by before the model sees them."""


class FieldSpec(Config):
    """The model: tokens, position tokens between them, a mixer, and what reads values off."""

    patch: int = Field(default=4, ge=1, description="points per token and axis")
    order: Literal["serpentine", "raster"] = Field(default="serpentine", description="in which tokens are read")
    lps: int = Field(default=64, ge=1, le=16_384, description="how many position tokens (M)")
    placement: Placement = Field(default="equidistant", description="where they stand among the others")
    groups: int = Field(default=2, ge=1, description="of placement n_group")
    conditional: bool = Field(default=True, description="position tokens start from the tokens before them, too")
    mixer: MixerChoice = Field(
        default=MIXERS.choose("bimamba"), description="what lets tokens exchange information: bimamba, attention"
    )
    encoding: EncodingChoice = Field(
        default=ENCODINGS.choose("none"), description="explicit encoding beside the position tokens"
    )
    hyponet: HyponetChoice = Field(
        default=HYPONETS.choose("cross_attention"), description="what turns position tokens into values"
    )
    d_model: int = Field(default=64, ge=1, description="width of the residual stream")
    heads: int = Field(default=4, ge=1, description="attention heads per layer; must divide d_model")
    layers: int = Field(default=2, ge=1, description="blocks of mixer and MLP")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="on what blocks add to the stream")
    mlp_ratio: float = Field(default=2.0, ge=0, description="width of the MLP's hidden layer over d_model; 0: no MLP")
    render_width: int = Field(default=32, ge=0, description="features per input point of the residual render; 0: none")
    render_layers: int = Field(default=3, ge=0, description="convolutions of the residual render")

    @property
    def kind(self) -> Kind:
        kinds = self.mixer.variant.kinds
        return "bidirectional" if "bidirectional" in kinds else "causal"

    def build(self, channels: int, size: tuple[int, ...], draw: int = 0) -> FieldModel:
        """For inputs of `size` points; draw: which random places. Raises ValueError for what cannot be built."""
        if self.mixer.name == "attention" and self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide d_model={self.d_model}.")
        if any(count % self.patch for count in size):
            raise ValueError(f"patch: {self.patch} does not divide the input of {'×'.join(map(str, size))} points.")
        mixer = self.mixer.variant
        unsupported_hooks = sorted(set(self.encoding.variant.hooks()) - set(mixer.hooks))
        if unsupported_hooks:
            raise ValueError(
                f"encoding: {self.encoding} enters through {', '.join(unsupported_hooks)}, which has no place here. "
                "Allowed with bimamba: none, sinusoidal, learned."
            )
        return FieldModel(self, channels, size, draw)


@dataclass(frozen=True)
class Encoded:
    """A signal as position tokens."""

    lps: Tensor
    """(rows, M, d_model)"""
    locations: Tensor
    """(1, M, k): the true place of each"""

    def swapped(self, by: int = 1) -> Encoded:
        """Every row with the tokens of another."""
        return Encoded(self.lps.roll(by, 0), self.locations)


class FieldModel(nn.Module):
    """encode: signal → position tokens. field: values from them alone. render: the enlarged input, corrected."""

    def __init__(self, spec: FieldSpec, channels: int, size: tuple[int, ...], draw: int = 0) -> None:
        super().__init__()
        self.spec, self.channels, self.size = spec, channels, size
        self.counts = tuple(count // spec.patch for count in size)
        axes, tokens = len(size), math.prod(count // spec.patch for count in size)
        self.embedding = FeatureEmbedding(channels * spec.patch**axes, spec.d_model)
        self.positions = PositionTokens(
            spec.d_model,
            count=spec.lps,
            placement=spec.placement,
            groups=spec.groups,
            conditional=spec.conditional,
            draw=draw,
        )
        self.encoding: Encoding = spec.encoding.build(
            d_model=spec.d_model,
            heads=spec.heads,
            head_dim=spec.d_model // spec.heads,
            causal=spec.kind == "causal",
            train_length=tokens,
            max_length=tokens,
        )
        if self.encoding.axes not in (1, axes):
            raise ValueError(f"encoding: {spec.encoding} reads {self.encoding.axes} axes, and the signal has {axes}.")
        self.blocks = nn.ModuleList(Block(cast(Any, spec)) for _ in range(spec.layers))
        self.norm = nn.LayerNorm(spec.d_model)
        self.hyponet: Hyponet = spec.hyponet.build(
            d_model=spec.d_model,
            axes=axes,
            lps=spec.lps,
            channels=channels,
            spacing=spec.lps ** (-1 / axes),
            points=max(size),
        )
        if isinstance(self.hyponet, Attended):
            self.hyponet.nearness.reach.copy_(self.positions.reach(axes))
        self.renderer = (
            ResidualRender(axes, channels, channels, spec.render_width, spec.render_layers)
            if spec.render_width
            else None
        )

    def encode(self, x: Tensor) -> Encoded:
        """x: (rows, channels, *size), values from 0 to 1."""
        order = scan_order(self.counts, serpentine=self.spec.order == "serpentine").to(x.device)
        tokens = self.embedding(_patches(_centred(x), self.spec.patch)[:, order])
        places = torch.arange(len(order), device=x.device)[None]
        tokens = self.encoding.embed(tokens, places)
        merged, along, interleaving = self.positions.interleave(tokens, places)
        coordinates = grid(self.counts, x.device)[order][None]
        homes = self._places(interleaving, coordinates)
        if self.encoding.axes > 1:  # where they are, in tokens, instead of when they are read
            along = interleaving.merge(coordinates, homes) * torch.tensor(self.counts, device=x.device)
        mixer = self.spec.mixer.variant
        context = mixer.contexts([self.encoding], along, self.spec.kind)[0]
        for block in self.blocks:
            merged = block(merged, context)
        lps = self.positions.extract(self.norm(merged), interleaving)
        return Encoded(lps, homes.to(lps.dtype))

    def _places(self, interleaving: Interleaving, coordinates: Tensor) -> Tensor:
        """Between those of their neighbours, unless a new line begins there: then the nearest one's."""
        between, nearest = interleaving.between(coordinates), interleaving.nearest(coordinates)
        width = cell(self.counts, coordinates.device)
        return torch.where(((between - nearest).abs() > 0.51 * width).any(-1, keepdim=True), nearest, between)

    def field(self, encoded: Encoded, at: Tensor, width: Tensor, heard_at: Tensor | None = None) -> Tensor:
        """Everything comes through the position tokens. at: (rows or 1, points, k) → (rows, points, channels)."""
        return self.hyponet(encoded.lps, encoded.locations, at, width, heard_at) * SPREAD + MIDDLE

    def features(self, x: Tensor, encoded: Encoded) -> Tensor:
        """What the residual render knows of the input."""
        assert self.renderer is not None
        return self.renderer.features(_centred(x), self._told(x, encoded))

    def _told(self, x: Tensor, encoded: Encoded) -> Tensor:
        """What the position tokens say at the input's own points; the residual render does not train them."""
        width, said = cell(self.size, x.device), []
        with torch.no_grad():
            for at in grid(self.size, x.device).split(AT_ONCE):
                said.append(self.hyponet(encoded.lps, encoded.locations, at[None], width))
        return torch.cat(said, 1)

    def render_loss(self, x: Tensor, encoded: Encoded, at: Tensor, width: Tensor, truth: Tensor) -> Tensor:
        assert self.renderer is not None
        return self.renderer.loss(_centred(x), self._told(x, encoded), at, width, _centred(truth))

    def render(self, x: Tensor, features: Tensor, at: Tensor, width: Tensor) -> Tensor:
        assert self.renderer is not None
        return self.renderer(_centred(x), features, at, width) * SPREAD + MIDDLE


def _centred(x: Tensor) -> Tensor:
    return (x - MIDDLE) / SPREAD


def _patches(x: Tensor, patch: int) -> Tensor:
    """(rows, channels, *size) → (rows, tokens, channels · patch^k), the last axis of tokens runs fastest."""
    axes = x.ndim - 2
    for axis in range(axes):
        x = x.unflatten(2 + 2 * axis, (-1, patch))
    outer, inner = range(2, 2 + 2 * axes, 2), range(3, 3 + 2 * axes, 2)
    return x.permute(0, *outer, 1, *inner).flatten(1, axes).flatten(2)


def scan_order(size: Sequence[int], *, serpentine: bool) -> Tensor:
    """(points,): indices into the grid in the order of reading. Serpentine turns round at every end: no step is far."""
    order = torch.arange(math.prod(size)).view(*size)
    if not serpentine:
        return order.flatten()

    def walk(part: Tensor, back: bool) -> Tensor:
        if part.ndim == 1:
            return part.flip(0) if back else part
        rows = part.flip(0) if back else part
        return torch.cat([walk(row, bool(index % 2) != back) for index, row in enumerate(rows)])

    return walk(order, False)
