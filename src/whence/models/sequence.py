"""The model that every instrument trains: pre-norm blocks of a mixer and an MLP, given the tokens' positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from whence.config import Config
from whence.encodings import ENCODINGS, EncodingChoice
from whence.encodings.base import Encoding
from whence.encodings.transforms import Transform, TransformChoice
from whence.mixers import MIXERS, Kind, Mixer, MixerChoice
from whence.models.layers import FeatureEmbedding, Linear, PlaceHead, Pool, TokenEmbedding, pooled
from whence.registry import Choice, structural_parameters
from whence.tasks import Per, Task


class PositionConfig(Config):
    """A positional encoding, and an optional transform of the positions."""

    encoding: EncodingChoice = Field(
        default=ENCODINGS.choose("rope"), description="positional encoding (see 'whence encodings')"
    )
    positions: TransformChoice | None = Field(
        default=None, description="transform of the positions before the encoding, such as randomized:span=512"
    )

    def __str__(self) -> str:
        """As written on the command line: `rope`, `randomized:span=512+alibi`."""
        return f"{self.positions}+{self.encoding}" if self.positions else str(self.encoding)


class Architecture(Config):
    """Architecture of the model."""

    mixer: MixerChoice = Field(
        default=MIXERS.choose("attention"),
        description="sequence mixer: attention, mamba or bimamba (options: docs/mamba.md)",
    )
    d_model: int = Field(default=64, ge=1, le=2**16, description="width of the residual stream")
    heads: int = Field(default=4, ge=1, le=2**12, description="number of attention heads; must divide d_model")
    layers: int = Field(default=2, ge=1, le=1000, description="number of blocks of mixer and MLP")
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="dropout rate of attention weights and of the residual branches"
    )
    mlp_ratio: float = Field(
        default=4.0, ge=0, le=256, description="hidden width of the MLP as a multiple of d_model; 0: no MLP"
    )
    attention: Kind = Field(
        default="causal",
        description="attention mask, by order in the sequence; prefix: bidirectional within the prompt",
    )
    pool: Pool = Field(default="last", description="pooling for tasks with one answer per sequence")

    def with_position(self, position: PositionConfig) -> ModelConfig:
        return ModelConfig(**self.model_dump(), encoding=position.encoding, positions=position.positions)


class ModelConfig(Architecture, PositionConfig):
    """The model and its encoding. `build` constructs the model.

    Example:
        >>> config = whence.models.ModelConfig(d_model=16, heads=2, layers=1, encoding="rope:base=500")
        >>> model = config.build(inputs=10, outputs=10)  # token kinds, kinds of answer
        >>> model(torch.randint(10, (2, 7)), torch.arange(7)[None]).shape  # (batch, length, outputs)
        torch.Size([2, 7, 10])
    """

    @property
    def position_label(self) -> str:
        """As written on the command line: `rope`, `randomized+alibi`."""
        return PositionConfig.__str__(self)

    __str__ = Config.__str__  # a model is a group of fields, not one word

    def build(
        self,
        inputs: int,
        outputs: int,
        per: Per = "token",
        *,
        train_length: int = 2048,
        max_length: int = 2048,
        continuous: bool = False,
    ) -> SequenceModel:
        """The model for `inputs` token kinds, or `inputs` features per step when continuous.

        Weights come from the global RNG; `initialise(model, seed)` makes them a function of the seed.

        Raises:
            ValueError: for fields that are impossible together.
        """
        mixer = self.mixer.variant
        if "heads" in structural_parameters(mixer) and self.d_model % self.heads:
            raise ValueError(
                f"heads: {self.heads} does not divide d_model={self.d_model}. "
                f"Nearest allowed: {_nearest_divisors(self.d_model, self.heads)}."
            )
        transform = self.positions and self.positions.build(train_length=train_length, max_length=max_length)
        if transform:
            train_length, max_length = transform.lengths(train_length, max_length)
        encodings = [
            self.encoding.build(
                d_model=self.d_model,
                heads=self.heads,
                head_dim=self.d_model // self.heads,
                causal=self.attention == "causal",
                train_length=train_length,
                max_length=max_length,
            )
            for _ in range(self.layers if self.encoding.variant.per_layer else 1)
        ]
        room = encodings[0].longest
        if room is not None and max_length > room:
            raise ValueError(f"encoding: {self.encoding} has room for {room} positions, got {max_length}.")
        if encodings[0].causal_only and self.attention != "causal":
            raise ValueError(f"attention: {self.attention!r} does not go with {self.encoding}. Allowed: causal.")
        available = supported_hooks(mixer)
        if missing := sorted(set(encodings[0].hooks()) - available):
            supported = (name for name in ENCODINGS.names() if set(ENCODINGS[name].hooks()) <= available)
            raise ValueError(
                f"encoding: {self.encoding} enters through {', '.join(missing)}, which {self.mixer} does "
                f"not have. Allowed: {', '.join(supported)}."
            )
        if self.attention not in mixer.kinds:
            raise ValueError(
                f"attention: {self.attention!r} does not apply to {self.mixer}, which has no attention: leave it out. "
                f"Allowed: {', '.join(mixer.kinds)}."
            )
        if transform and not encodings[0].admits_transforms:
            raise ValueError(
                f"positions: {self.positions} has no effect on {self.encoding}, which reads none. Allowed: none."
            )
        return SequenceModel(self, encodings, inputs, outputs, per, continuous=continuous, transform=transform)


def activation_bytes(model: Any, hooks: Collection[str], rows: int, tokens: int, *, training: bool) -> int:
    """Lower bound of the memory of a forward pass: the residual stream and the attention scores.

    `model` is any config with `d_model`, `layers` and `heads`.
    """
    stream = rows * tokens * model.d_model * (model.layers if training else 1)
    pairs = tokens**2 * (rows * model.heads if "score" in hooks else "bias" in hooks)
    return 4 * (stream + pairs)


def supported_hooks(mixer: type[Mixer]) -> set[str]:
    """Hooks that a model with this mixer supports: those of the mixer, and `interleave`."""
    return {*mixer.hooks, "interleave"}


def _nearest_divisors(number: int, wanted: int) -> str:
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    below = [n for n in divisors if n < wanted][-1:]
    above = [n for n in divisors if n > wanted][:1]
    return " or ".join(str(n) for n in below + above)


class SequenceModel(nn.Module):
    """Embedding, blocks, norm, linear head. Positions are an argument: the model never counts tokens itself.

    `ModelConfig.build` returns an untrained one, `whence.arena.load` a trained one.

    Example:
        >>> model = whence.models.ModelConfig(d_model=16, heads=2).build(inputs=10, outputs=2, per="sequence")
        >>> model(torch.randint(10, (3, 7)), torch.arange(7)[None]).shape  # (batch, outputs)
        torch.Size([3, 2])
    """

    def __init__(
        self,
        config: ModelConfig,
        encodings: Sequence[Encoding],
        inputs: int,
        outputs: int,
        per: Per = "token",
        *,
        continuous: bool = False,
        transform: Transform | None = None,
    ) -> None:
        """`encodings`: one for all layers, or one per layer. `per`: what an answer is about."""
        super().__init__()
        if len(encodings) not in (1, config.layers):
            raise ValueError(f"{len(encodings)} encodings for {config.layers} layers: give one, or one per layer")
        self.config = config
        self.explicit = False  # True forces attention's step-by-step path, which the fused one must equal
        self.per: Per = per
        self.transform = transform
        self.encodings = nn.ModuleList(encodings)
        embedding = FeatureEmbedding if continuous else TokenEmbedding
        self.embedding = embedding(inputs, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.head = PlaceHead(config.d_model, outputs) if per == "place" else Linear(config.d_model, outputs)

    def forward(
        self, inputs: Tensor, positions: Tensor, *, valid: Tensor | None = None, prefix: Tensor | None = None
    ) -> Tensor:
        """→ (batch, length, outputs) per token, (batch, outputs) per sequence, (batch, outputs, length) per place.

        inputs: token ids (batch, length), or (batch, length, features). positions: (batch or 1, length[, axes]).
        valid: bool (batch, length), False at padding. prefix: (batch,) lengths, for attention="prefix".
        """
        encodings = [encoding for encoding in self.encodings if isinstance(encoding, Encoding)]
        _check_positions(inputs, positions, encodings[0].axes)
        if self.transform is not None:
            positions = self.transform(positions, training=self.training)
        x = encodings[0].embed(self.embedding(inputs), positions)
        interleaving, present = None, valid
        if "interleave" in encodings[0].hooks():
            if prefix is not None:
                raise ValueError(f"{encodings[0].name} does not go with prefix attention")
            x, positions, interleaving = encodings[0].interleave(x, positions, valid)
            inserted = torch.ones(len(x), interleaving.count, dtype=torch.bool, device=x.device)
            present = None if valid is None else interleaving.merge(valid, inserted)
        contexts = self.config.mixer.variant.contexts(
            encodings, positions, self.config.attention, valid=present, prefix=prefix, explicit=self.explicit
        )
        for layer, block in enumerate(self.blocks):
            x = block(x, contexts[layer % len(contexts)])
        x = self.norm(x if interleaving is None else interleaving.tokens(x))
        if self.per == "token":
            return self.head(x)
        whole = pooled(x, self.config.pool, valid)
        return self.head(whole) if self.per == "sequence" else self.head(whole, x, valid)


def _check_positions(inputs: Tensor, positions: Tensor, axes: int) -> None:
    shape, given = tuple(inputs.shape[:2]), tuple(positions.shape)
    if given[:2] not in (shape, (1, shape[1])):
        raise ValueError(f"positions have shape {given} for inputs of (batch, length) = {shape}")
    if axes > 1 and given[2:] != (axes,):
        raise ValueError(
            f"this encoding reads {axes} position axes: positions need shape (batch, length, {axes}), got {given}"
        )


class Block(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x)) if there is an MLP."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_mlp = max(1, round(config.d_model * config.mlp_ratio)) if config.mlp_ratio else 0
        residual = 1 / math.sqrt((2 if d_mlp else 1) * config.layers)
        self.dropout = config.dropout
        self.mixer_norm = nn.LayerNorm(config.d_model)
        self.mixer: Mixer = config.mixer.build(
            d_model=config.d_model, heads=config.heads, dropout=config.dropout, out_scale=residual
        )
        self.has_mlp = d_mlp > 0
        if d_mlp:
            self.mlp_norm = nn.LayerNorm(config.d_model)
            self.up = Linear(config.d_model, d_mlp)
            self.down = Linear(d_mlp, config.d_model, scale=residual)

    def forward(self, x: Tensor, context: Any) -> Tensor:
        x = x + self._drop(self.mixer(self.mixer_norm(x), context))
        return x + self._drop(self.down(F.gelu(self.up(self.mlp_norm(x))))) if self.has_mlp else x

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def count_blocks(layers: int, build: Callable[[int], nn.Module]) -> int:
    """Number of parameters of a model with identical blocks. At most two blocks are built, by `build(layers)`."""
    if layers <= 2:
        return count_parameters(build(layers))
    one, two = (count_parameters(build(count)) for count in (1, 2))
    return one + (layers - 1) * (two - one)


@runtime_checkable
class SequenceRun(Protocol):
    """A run of a sequence model on a task, for instruments that use runs of another one without importing it."""

    @property
    def id(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def task(self) -> Choice[Task]: ...
    @property
    def model(self) -> ModelConfig: ...
    @property
    def train_length(self) -> int: ...
    def labels(self) -> dict[str, str]: ...
    def build_model(self, device: torch.device | str) -> SequenceModel: ...
