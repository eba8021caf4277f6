"""A masked model of time series: windows of a recording become tokens, and masked tokens are predicted.

The architecture is that of "Position Leakage Root Cause Analysis".
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, cast

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from whence.config import Config
from whence.encodings import ENCODINGS, EncodingChoice
from whence.encodings.base import Encoding
from whence.errors import UserError
from whence.leak.audit.probe import FOLDS
from whence.leak.mitigations import Mitigation
from whence.mixers import MIXERS, Kind, MixerChoice
from whence.models.layers import FeatureEmbedding, Linear
from whence.models.sequence import Block

Layout = Literal["time", "time_channel"]


def _as_mixer(value: Any) -> Any:
    """`transformer` names the mixer `attention`."""
    name = "transformer"
    if isinstance(value, str) and value.split(":")[0] == name:
        return "attention" + value[len(name) :]
    return value


class MaskedSpec(Config):
    """Architecture, and how recordings become tokens."""

    backbone: Annotated[MixerChoice, BeforeValidator(_as_mixer)] = Field(
        default=MIXERS.choose("bimamba"), description="transformer, mamba or bimamba"
    )
    temporal: EncodingChoice = Field(
        default=ENCODINGS.choose("sinusoidal"), description="positional encoding of time (see 'whence encodings')"
    )
    spatial: EncodingChoice = Field(
        default=ENCODINGS.choose("learned"),
        description="additive encoding of the channel, with --layout time_channel",
    )
    layout: Layout = Field(
        default="time",
        description="time: one token per window, with all channels; time_channel: one token per window and channel",
    )
    window: int = Field(default=4, ge=1, le=2**16, description="time steps per token")
    replacement: Literal["zeros", "noise", "learned"] = Field(
        default="learned", description="input at masked tokens: zeros, Gaussian noise, or one learned vector"
    )
    d_model: int = Field(default=32, ge=1, le=2**16, description="width of the residual stream")
    heads: int = Field(default=4, ge=1, le=2**12, description="attention heads per layer; must divide d_model")
    layers: int = Field(default=2, ge=1, le=1000, description="number of blocks, each a mixer and an MLP")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout rate of the residual branches; 0: none")
    mlp_ratio: float = Field(
        default=2.0, ge=0, le=256, description="hidden width of the MLP, as a multiple of d_model; 0: no MLP"
    )
    causal: bool = Field(default=False, description="causal instead of bidirectional attention")

    @property
    def mixer(self) -> Any:
        return self.backbone

    @property
    def kind(self) -> Kind:
        """The kind of mixing; mixers other than attention support one kind only."""
        kinds = self.backbone.variant.kinds
        return "bidirectional" if "bidirectional" in kinds and not self.causal else "causal"

    def shape(self, steps: int, channels: int) -> tuple[int, int]:
        """Tokens per example, and features per token."""
        if steps % self.window:
            raise UserError(
                f"window: {self.window} does not divide the {steps} steps of an example. "
                f"Allowed: {', '.join(str(n) for n in range(1, steps) if steps % n == 0)}."
            )
        times = steps // self.window
        if times < FOLDS:
            raise UserError(
                f"window: expected at least {FOLDS} windows per example, for a {FOLDS}-fold cross-validation, got "
                f"{times} ({steps} steps in windows of {self.window}). Allowed: up to {steps // FOLDS}."
            )
        return (times, self.window * channels) if self.layout == "time" else (times * channels, self.window)

    def tokens(self, examples: Tensor) -> Tensor:
        """(rows, steps, channels) → (rows, tokens, features)."""
        cut = examples.unflatten(1, (-1, self.window))  # rows, times, window, channels
        return cut.flatten(2) if self.layout == "time" else cut.transpose(2, 3).flatten(1, 2)

    def positions(self, steps: int, channels: int) -> Tensor:
        """(1, tokens, 2): the time and the channel of every token."""
        count, _ = self.shape(steps, channels)
        index = torch.arange(count)
        wide = 1 if self.layout == "time" else channels
        return torch.stack([index // wide, index % wide], -1)[None]

    def build(self, tokens: int, features: int, channels: int, mitigations: list[Mitigation]) -> MaskedModel:
        """Raise ValueError for fields that are valid alone and impossible together."""
        mixer = self.backbone.variant
        if self.backbone.name == "attention" and self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide d_model={self.d_model}.")
        for name, choice, hooks in (("temporal", self.temporal, mixer.hooks), ("spatial", self.spatial, ("embed",))):
            unsupported_hooks = sorted(set(choice.variant.hooks()) - set(hooks))
            if unsupported_hooks:
                raise ValueError(
                    f"{name}: {choice} enters through {', '.join(unsupported_hooks)}, which this model does not "
                    "support. Allowed: sinusoidal, learned, none."
                )
        return MaskedModel(self, tokens, features, channels, mitigations)

    def encoding(self, choice: Any, length: int) -> Encoding:
        return choice.build(
            d_model=self.d_model,
            heads=self.heads,
            head_dim=self.d_model // self.heads,
            causal=self.kind == "causal",
            train_length=length,
            max_length=length,
        )


class MaskedModel(nn.Module):
    """Reconstructs masked tokens from visible tokens and the positions of all."""

    def __init__(
        self, spec: MaskedSpec, tokens: int, features: int, channels: int, mitigations: list[Mitigation]
    ) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = FeatureEmbedding(features, spec.d_model)
        self.mask = LearnedMaskToken(spec.d_model)
        self.temporal = spec.encoding(spec.temporal, tokens)
        self.spatial = spec.encoding(spec.spatial, channels) if spec.layout == "time_channel" else None
        for mitigation in mitigations:
            mitigation.check(spec.replacement, self.temporal)
        self.active, self.mitigations = mitigations, nn.ModuleList(mitigations)
        # Only to be captured: embedded tokens before encodings are added, and the input of the first block.
        self.shown, self.embedded = nn.Identity(), nn.Identity()
        self.blocks = nn.ModuleList(Block(cast(Any, spec)) for _ in range(spec.layers))
        self.norm = nn.LayerNorm(spec.d_model)
        self.head = Linear(spec.d_model, features)

    def forward(self, tokens: Tensor, masked: Tensor, positions: Tensor) -> Tensor:
        """Predictions (rows, tokens, features).

        Args:
            tokens: (rows, tokens, features). Values at masked tokens are ignored.
            masked: bool (rows, tokens).
            positions: (rows or 1, tokens, 2), time and channel.
        """
        for mitigation in self.active:
            tokens = mitigation.content(tokens)
        x = self.embed(tokens, masked, positions)
        for mitigation in self.active:
            x = mitigation.embed(x, ~masked)
        x = self._mix(self.embedded(x), ~masked, positions[..., 0].expand(len(x), -1))
        prediction = self.head(self.norm(x))
        for mitigation in reversed(self.active):
            prediction = mitigation.restore(prediction)
        return prediction

    def embed(self, tokens: Tensor, masked: Tensor, positions: Tensor) -> Tensor:
        """Embedded tokens, with masked ones replaced, and the additive encodings."""
        visible = tokens.masked_fill(masked[..., None], 0)
        if self.spec.replacement == "noise":
            visible = torch.where(masked[..., None], torch.randn_like(tokens), visible)
        x = self.embedding(visible)
        if self.spec.replacement == "learned":
            x = torch.where(masked[..., None], self.mask.vector.to(x.dtype), x)
        x = self.shown(x)
        time = self.temporal.embed(torch.zeros_like(x), positions[..., 0])
        for mitigation in self.active:
            time = mitigation.encoding(time, masked)
        x = x + time
        return x if self.spatial is None else x + self.spatial.embed(torch.zeros_like(x), positions[..., 1])

    def _mix(self, x: Tensor, visible: Tensor, positions: Tensor) -> Tensor:
        orders = [order for mitigation in self.active if (order := mitigation.order(x)) is not None]
        if orders:
            order = orders[0]
            x, visible, positions = _take(x, order), visible.gather(1, order), positions.gather(1, order)
        for layer, block in enumerate(self.blocks):
            x = block(x, self._context(layer, visible, positions))
        return _take(x, orders[0].argsort(1)) if orders else x

    def _context(self, layer: int, visible: Tensor, positions: Tensor) -> Any:
        writes = [w for mitigation in self.active if (w := mitigation.writes(visible, layer)) is not None]
        mixer = self.spec.backbone.variant
        return mixer.contexts([self.temporal], positions, self.spec.kind, valid=writes[0] if writes else None)[0]


class LearnedMaskToken(nn.Module):
    """One vector for all masked tokens."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.vector, std=math.sqrt(0.5))


def _take(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order[..., None].expand_as(x))
