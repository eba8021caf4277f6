"""The masked model of the source: windows of a recording become tokens, some are masked and predicted."""

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
    """What the source calls a Transformer is a mixer of attention here."""
    name = "transformer"
    if isinstance(value, str) and value.split(":")[0] == name:
        return "attention" + value[len(name) :]
    return value


class MaskedSpec(Config):
    """The model, and how recordings become tokens."""

    backbone: Annotated[MixerChoice, BeforeValidator(_as_mixer)] = Field(
        default=MIXERS.choose("bimamba"), description="transformer, mamba or bimamba"
    )
    temporal: EncodingChoice = Field(
        default=ENCODINGS.choose("sinusoidal"), description="how time enters (see 'whence encodings')"
    )
    spatial: EncodingChoice = Field(
        default=ENCODINGS.choose("learned"),
        description="how the channel enters, if every token belongs to one; must be added to tokens",
    )
    layout: Layout = Field(
        default="time", description="time: a token holds all channels of a window; time_channel: one channel of it"
    )
    window: int = Field(default=4, ge=1, le=2**16, description="steps per token")
    replacement: Literal["zeros", "noise", "learned"] = Field(
        default="learned", description="what stands where a token is masked"
    )
    d_model: int = Field(default=32, ge=1, le=2**16, description="width of the residual stream")
    heads: int = Field(default=4, ge=1, le=2**12, description="attention heads per layer; must divide d_model")
    layers: int = Field(default=2, ge=1, le=1000, description="blocks of mixer and MLP")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="on what blocks add to the stream")
    mlp_ratio: float = Field(
        default=2.0, ge=0, le=256, description="width of the MLP's hidden layer over d_model; 0: no MLP"
    )
    causal: bool = Field(default=False, description="attention sees only what lies before")

    @property
    def mixer(self) -> Any:
        return self.backbone

    @property
    def kind(self) -> Kind:
        """What a mixer calls it; those that are not attention know one kind only."""
        kinds = self.backbone.variant.kinds
        return "bidirectional" if "bidirectional" in kinds and not self.causal else "causal"

    def shape(self, steps: int, channels: int) -> tuple[int, int]:
        """How many tokens an example makes, and how many numbers each holds."""
        if steps % self.window:
            raise UserError(
                f"window: {self.window} does not divide the {steps} steps of an example. "
                f"Allowed: {', '.join(str(n) for n in range(1, steps) if steps % n == 0)}."
            )
        times = steps // self.window
        if times < FOLDS:
            raise UserError(
                f"window: {self.window} makes {times} of {steps} steps, fewer than the {FOLDS} parts of a "
                f"cross-validation. Allowed: up to {steps // FOLDS}."
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
        """Raises ValueError for what no single field can know."""
        mixer = self.backbone.variant
        if self.backbone.name == "attention" and self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide d_model={self.d_model}.")
        for name, choice, hooks in (("temporal", self.temporal, mixer.hooks), ("spatial", self.spatial, ("embed",))):
            unsupported_hooks = sorted(set(choice.variant.hooks()) - set(hooks))
            if unsupported_hooks:
                raise ValueError(
                    f"{name}: {choice} enters through {', '.join(unsupported_hooks)}, which has no place here. "
                    "Allowed: sinusoidal, learned, none."
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
    """Predicts the numbers of masked tokens from visible ones, told where all of them are."""

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
        self.shown, self.embedded = nn.Identity(), nn.Identity()  # to look at: masked tokens; what the first block gets
        self.blocks = nn.ModuleList(Block(cast(Any, spec)) for _ in range(spec.layers))
        self.norm = nn.LayerNorm(spec.d_model)
        self.head = Linear(spec.d_model, features)

    def forward(self, tokens: Tensor, masked: Tensor, positions: Tensor) -> Tensor:
        """tokens: (rows, tokens, features), the truth at masked places too: it is not looked at.
        masked: bool (rows, tokens). positions: (rows or 1, tokens, 2).
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
        """Content, or what stands for it, and the additive encodings."""
        shown = tokens.masked_fill(masked[..., None], 0)
        if self.spec.replacement == "noise":
            shown = torch.where(masked[..., None], torch.randn_like(tokens), shown)
        x = self.embedding(shown)
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
