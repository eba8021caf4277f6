"""Encoders: from activations to pre-activations."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.dictionary import Shape
from whence.features.sae.masks import membership, spread_centres, windows
from whence.kernels.sparse_code import ByFeature, gathered, scores
from whence.registry import Registry, Variant


class Encoder(Variant, nn.Module):
    """One set of weights; subclasses add what depends on position."""

    positional: tuple[str, ...] = ()
    """Parameters that are about position, which have a learning rate of their own."""

    def __init__(self, shape: Shape, copies: tuple[int, ...] = ()) -> None:
        """copies: of the weights."""
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.empty(*copies, shape.d_sae, shape.d_in))
        self.bias = nn.Parameter(torch.empty(*copies, shape.d_sae))

    def init_weights(self, directions: Tensor, bias: float) -> None:
        """All weights from the decoder's first directions (d_sae, d_in), all biases from one number."""
        self.weight.data.copy_(directions.expand_as(self.weight))
        nn.init.constant_(self.bias, bias)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        """States as the weights see them. strength: how far position counts by now."""
        return x

    def linear(self, x: Tensor, positions: Tensor) -> Tensor:
        """(n, d_sae); without gradients in memory that the next call uses again."""
        if torch.is_grad_enabled():
            return nn.functional.linear(x, self.weight, self.bias)
        return scores(x, self.weight, self.bias)

    def linear_at(self, x: Tensor, positions: Tensor, named: ByFeature, known: Tensor) -> Tensor:
        """(n, k): the same at some features only. known: all of them, computed without gradients."""
        return gathered(x, self.weight, self.bias, named.indices, dense=known, by_feature=named)

    def scale(self, strength: float) -> Tensor | None:
        """Multipliers of pre-activations, (context_size, d_sae), which are 1 with the mask off; None: 1."""
        return None

    def shift(self, strength: float) -> Tensor | None:
        """(context_size, d_sae); None: 0."""
        return None

    def restore(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        """The counterpart of `prepare`, of what was decoded."""
        return x

    def parts(self) -> Tensor | None:
        """(d_sae,) numbers of the parts that the dictionary consists of; None: it has none."""
        return None


def toward(table: Tensor, strength: float) -> Tensor:
    """A multiplier that counts only so far: at strength 0 it is 1."""
    return table if strength == 1 else 1 + strength * (table - 1)


def zeros(*size: int) -> nn.Parameter:
    """What has no effect at first."""
    return nn.Parameter(torch.zeros(size))


def drawn(*size: int) -> nn.Parameter:
    """What `reset_parameters` draws."""
    return nn.Parameter(torch.empty(size))


ENCODERS: Registry[Encoder] = Registry(__name__, Encoder)


class Shared(Encoder):
    """The same weights at every position."""


class PerRange(Encoder):
    """The context in ranges; each has encoder weights of its own, the decoder is shared."""

    positional = ("embedding",)

    def __init__(
        self,
        shape: Shape,
        *,
        ranges: Annotated[int, Field(ge=1, le=2**12, description="ranges of positions")] = 4,
        embedded: Annotated[bool, Field(description="a learned vector per range is added to its states")] = False,
    ) -> None:
        super().__init__(shape, (ranges,))
        self.ranges = ranges
        self.embedding = drawn(ranges, shape.d_in) if embedded else None

    def reset_parameters(self) -> None:
        if self.embedding is not None:
            nn.init.normal_(self.embedding, std=0.02)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x if self.embedding is None else x + strength * self.embedding[self._range(positions)]

    def linear(self, x: Tensor, positions: Tensor) -> Tensor:
        rows = self._rows(positions)
        parts = [nn.functional.linear(x[some], self.weight[r], self.bias[r]) for r, some in enumerate(rows)]
        return torch.cat(parts)[torch.cat(rows).argsort()]

    def linear_at(self, x: Tensor, positions: Tensor, named: ByFeature, known: Tensor) -> Tensor:
        rows = self._rows(positions)
        parts = [
            gathered(x[some], self.weight[r], self.bias[r], named.indices[some], dense=known[some])
            for r, some in enumerate(rows)
        ]
        return torch.cat(parts)[torch.cat(rows).argsort()]

    def _range(self, positions: Tensor) -> Tensor:
        return positions * self.ranges // self.shape.context_size

    def _rows(self, positions: Tensor) -> list[Tensor]:
        """For every range, which rows stand in it."""
        return [(self._range(positions) == r).nonzero().flatten() for r in range(self.ranges)]


class _Embedded(Encoder):
    """A learned vector for every position is added to its states."""

    positional = ("embedding",)

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.embedding = drawn(shape.context_size, shape.d_in)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.embedding, std=0.02)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * self.embedding[positions]


class Grouped(_Embedded):
    """Features in groups, each with its own positions and active there alone; states carry a position embedding."""

    members: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        groups: Annotated[int, Field(ge=0, le=2**20, description="of features; 0: one for every position")] = 0,
    ) -> None:
        super().__init__(shape)
        groups = groups or shape.context_size
        if groups > shape.d_sae:
            raise ValueError(f"d_sae: {shape.d_sae} features make no {groups} groups")
        self.register_buffer("members", membership(shape, groups), persistent=False)

    def scale(self, strength: float) -> Tensor:
        return toward(self.members, strength)


class _Routed(_Embedded):
    """Positions ask, features answer."""

    positional: tuple[str, ...] = ("embedding", "query", "key")

    def __init__(self, shape: Shape, rank: int, features: int) -> None:
        super().__init__(shape)
        self.query, self.key = drawn(shape.context_size, rank), drawn(features, rank)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.normal_(self.query)
        nn.init.normal_(self.key)

    def routed(self, prior: Tensor | float = 0.0) -> Tensor:
        """(context_size, features): softmax over features, times their number. prior: added to the logits."""
        logits = self.query @ self.key.mT / self.query.shape[1] ** 0.5
        return len(self.key) * (logits + prior).softmax(1)


class AttentionRouted(_Routed):
    """Positions ask, features answer: softmax over features, so that a position's weights are 1 on average."""

    def __init__(
        self, shape: Shape, *, rank: Annotated[int, Field(ge=1, le=2**16, description="numbers per query and key")] = 32
    ) -> None:
        super().__init__(shape, rank, shape.d_sae)

    def scale(self, strength: float) -> Tensor:
        return toward(self.routed(), strength)


class Hierarchical(_Routed):
    """A share of the features is global; the others are routed by attention with a bell around their place as prior.

    A learned gate per position mixes the two kinds.
    """

    bells: Tensor
    positional = ("embedding", "query", "key", "gates")

    def __init__(
        self,
        shape: Shape,
        *,
        share: Annotated[float, Field(gt=0, lt=1, description="of features that are global")] = 0.5,
        rank: Annotated[int, Field(ge=1, le=2**16, description="numbers per query and key")] = 32,
    ) -> None:
        self.everywhere = max(1, min(shape.d_sae - 1, round(share * shape.d_sae)))
        position_specific = shape.d_sae - self.everywhere
        super().__init__(shape, rank, position_specific)
        self.gates = zeros(shape.context_size, 2)
        bells = windows(shape.context_size, spread_centres(shape.context_size, position_specific), 1 / 8)
        self.register_buffer("bells", bells.clamp(min=1e-6).log(), persistent=False)

    def scale(self, strength: float) -> Tensor:
        """At strength 0 there are global features only."""
        gates = 1 + strength * (2 * self.gates.sigmoid() - 1)
        position_specific = strength * gates[:, 1:] * self.routed(self.bells)
        return torch.cat([gates[:, :1].expand(-1, self.everywhere), position_specific], 1)

    def parts(self) -> Tensor:
        return (torch.arange(self.shape.d_sae, device=self.weight.device) >= self.everywhere).long()


COARSE = 8
"""Positions that share a row of the coarse embedding."""
LOCAL, MEDIUM = 1 / 16, 1 / 4
"""Widths of bells, as shares of the context."""


class MultiScale(Encoder):
    """A third of the features in narrow bells, a third in wide ones, a third everywhere.

    The three have learned weights at every position; embeddings of positions and of blocks of them are added to states.
    """

    bells: Tensor
    positional = ("fine", "coarse", "attention")

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        context_size = shape.context_size
        self.fine, self.coarse = drawn(context_size, shape.d_in), drawn(-(-context_size // COARSE), shape.d_in)
        self.attention = zeros(context_size, 3)
        centres = spread_centres(context_size, shape.d_sae)
        kinds = [windows(context_size, centres, share) for share in (LOCAL, MEDIUM)]
        kinds.append(torch.ones(context_size, shape.d_sae))
        bells = torch.stack(kinds).gather(0, self.parts().expand(1, context_size, -1))[0]
        self.register_buffer("bells", bells, persistent=False)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.fine, std=0.02)
        nn.init.normal_(self.coarse, std=0.02)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        return x + strength * (self.fine[positions] + self.coarse[positions // COARSE])

    def scale(self, strength: float) -> Tensor:
        weights = 3 * self.attention.softmax(1)
        return toward(self.bells * weights[:, self.parts()], strength)

    def parts(self) -> Tensor:
        """0 local, 1 medium, 2 global"""
        return torch.arange(self.shape.d_sae, device=self.weight.device) * 3 // self.shape.d_sae


class ResidualPosition(Encoder):
    """Features are scaled by position (1 + tanh), and get a gated shortcut from it.

    The two have embeddings of their own, so that neither's gradient moves the other.
    """

    positional = ("scaling", "scaled", "embedding", "mapping", "gates")

    def __init__(
        self,
        shape: Shape,
        *,
        rank: Annotated[int, Field(ge=1, le=2**16, description="numbers per position embedding")] = 32,
        scaled: Annotated[bool, Field(description="position scales features")] = True,
    ) -> None:
        super().__init__(shape)
        self.scaling = drawn(shape.context_size, rank) if scaled else None
        self.scaled = zeros(rank, shape.d_sae) if scaled else None
        self.embedding, self.mapping = drawn(shape.context_size, rank), zeros(rank, shape.d_sae)
        self.gates = zeros(shape.context_size, 1)

    def reset_parameters(self) -> None:
        for embedding in (self.scaling, self.embedding):
            if embedding is not None:
                nn.init.normal_(embedding, std=embedding.shape[1] ** -0.5)

    def scale(self, strength: float) -> Tensor | None:
        if self.scaling is None or self.scaled is None:
            return None
        return 1 + strength * (self.scaling @ self.scaled).tanh()

    def shift(self, strength: float) -> Tensor:
        return strength * self.gates.sigmoid() * (self.embedding @ self.mapping)


class Adapted(Encoder):
    """x + gate · MLP(layer norm(x)), with an MLP and a gate for every range; then one set of weights."""

    positional = ("inward", "outward", "gates")

    def __init__(
        self,
        shape: Shape,
        *,
        ranges: Annotated[int, Field(ge=1, le=2**12, description="ranges of positions")] = 4,
        hidden: Annotated[int, Field(ge=1, le=2**16, description="units of each MLP")] = 64,
    ) -> None:
        super().__init__(shape)
        self.inward, self.outward = drawn(ranges, shape.d_in, hidden), zeros(ranges, hidden, shape.d_in)
        self.gates = zeros(ranges)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.inward, std=self.shape.d_in**-0.5)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        normal, ranges = nn.functional.layer_norm(x, (self.shape.d_in,)), len(self.gates)
        near = nn.functional.one_hot(positions * ranges // self.shape.context_size, ranges).to(x.dtype)
        hidden = torch.einsum("nw,rwh->nrh", normal, self.inward).relu()
        adaptation = torch.einsum("nrh,nr,rhw->nw", hidden, near * self.gates.sigmoid(), self.outward)
        return x + strength * adaptation


class Corrected(Encoder):
    """x + B · (c(p) ∘ A x): all positions share a few directions, each weighs them in its own way.

    The same form, with weights of its own, is applied to what was decoded: features can then mean different directions
    in different places.
    """

    positional = ("inward", "outward", "weights", "inward_after", "outward_after", "weights_after")

    def __init__(
        self,
        shape: Shape,
        *,
        rank: Annotated[int, Field(ge=1, le=2**16, description="directions that are corrected")] = 32,
        everywhere: Annotated[bool, Field(description="control: one set of weights for all positions")] = False,
    ) -> None:
        super().__init__(shape)
        rows = 1 if everywhere else shape.context_size
        self.inward, self.inward_after = drawn(shape.d_in, rank), drawn(shape.d_in, rank)
        self.outward, self.outward_after = drawn(rank, shape.d_in), drawn(rank, shape.d_in)
        self.weights, self.weights_after = zeros(rows, rank), zeros(rows, rank)

    def reset_parameters(self) -> None:
        for map_ in (self.inward, self.outward, self.inward_after, self.outward_after):
            nn.init.normal_(map_, std=self.shape.d_in**-0.5)

    def prepare(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        weights = self.weights[positions % len(self.weights)]
        return x + strength * ((x @ self.inward) * weights) @ self.outward

    def restore(self, x: Tensor, positions: Tensor, strength: float) -> Tensor:
        weights = self.weights_after[positions % len(self.weights_after)]
        return x + strength * ((x @ self.inward_after) * weights) @ self.outward_after
