"""Loss terms besides reconstruction and sparsity: weights on the errors, or terms of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.dictionary import Shape
from whence.features.sae.sparsity import Code
from whence.registry import Registry, Variant


@dataclass(frozen=True)
class EncodedBatch:
    """Activations with their codes, and a function that decodes them."""

    x: Tensor
    """(n, d_in): the activations to reconstruct"""
    positions: Tensor
    """(n,)"""
    code: Code
    decoded: Callable[[Tensor], Tensor]
    """Values of the code's features → (n, d_in)"""
    parts: Tensor | None
    """(d_sae,): parts of the dictionary, where the encoder has them"""

    def error(self, values: Tensor | None = None) -> Tensor:
        """(n,): mean squared error of the reconstruction from the code, or from other values in its place."""
        reconstruction = self.decoded(self.code.values if values is None else values)
        return (self.x - reconstruction).square().mean(1)


class Loss(Variant, nn.Module):
    """Overrides `weights` or `term`."""

    needs_parts = False
    """Requires an encoder whose dictionary has parts"""
    positional: tuple[str, ...] = ()
    """Names of position-dependent parameters, which have their own learning rate"""

    def weights(self, positions: Tensor) -> Tensor | float:
        """Multipliers of squared errors, (n,)."""
        return 1.0

    def term(self, batch: EncodedBatch) -> Tensor | float:
        return 0.0


LOSSES: Registry[Loss] = Registry(__name__, Loss)


class PositionWeighted(Loss):
    """Weight squared errors by a factor that rises linearly along the context, with mean 1."""

    def __init__(
        self,
        shape: Shape,
        *,
        first: Annotated[float, Field(gt=0, le=1e6, description="weight of the first position")] = 1.0,
        last: Annotated[float, Field(gt=0, le=1e6, description="weight of the last position")] = 2.0,
    ) -> None:
        super().__init__()
        self.context_size, self.first, self.last = shape.context_size, first, last

    def weights(self, positions: Tensor) -> Tensor:
        along = positions / max(1, self.context_size - 1)
        return (self.first + (self.last - self.first) * along) / ((self.first + self.last) / 2)


class ScaleTargets(Loss):
    """Add the reconstruction errors of the first part of the dictionary, of the first two, and so on."""

    needs_parts = True

    def __init__(
        self, *, weight: Annotated[float, Field(gt=0, le=1e9, description="weight of each partial error")] = 0.1
    ) -> None:
        super().__init__()
        self.weight = weight

    def term(self, batch: EncodedBatch) -> Tensor | float:
        assert batch.parts is not None
        code = batch.code
        part = batch.parts if code.indices is None else batch.parts[code.indices]
        partial = [batch.error(code.values * (part <= last)).mean() for last in range(int(batch.parts.max()))]
        return self.weight * sum(partial)


class InfoNCE(Loss):
    """Contrastive term (InfoNCE) between projected codes and position embeddings."""

    positional = ("projection", "embedding")

    def __init__(
        self,
        shape: Shape,
        *,
        weight: Annotated[float, Field(gt=0, le=1e9, description="weight of the term")] = 0.1,
        temperature: Annotated[float, Field(gt=0, le=1e6, description="temperature of the similarities")] = 0.1,
        rank: Annotated[int, Field(ge=1, le=2**16, description="dimensions of the projection")] = 32,
    ) -> None:
        super().__init__()
        self.weight, self.temperature = weight, temperature
        self.projection = nn.Parameter(torch.empty(shape.d_sae, rank))
        self.embedding = nn.Parameter(torch.empty(shape.context_size, rank))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.projection)
        nn.init.normal_(self.embedding)

    def term(self, batch: EncodedBatch) -> Tensor:
        projected = nn.functional.normalize(batch.code.times(self.projection), dim=1)
        embedded = nn.functional.normalize(self.embedding, dim=1)
        return self.weight * nn.functional.cross_entropy(projected @ embedded.mT / self.temperature, batch.positions)
