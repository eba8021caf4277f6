"""Weights for every range of positions, one decoder."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.encoders.base import Encoder, position_table
from whence.kernels.sparse_code import ByFeature, gathered


class PerRange(Encoder):
    """The context in ranges; each has encoder weights of its own, the decoder is shared."""

    positional = ("embedding",)

    def __init__(
        self,
        width: int,
        size: int,
        context: int,
        *,
        ranges: Annotated[int, Field(ge=1, description="ranges of positions")] = 4,
        embedded: Annotated[bool, Field(description="a learned vector per range is added to its states")] = False,
    ) -> None:
        self.ranges = ranges
        super().__init__(width, size, context)
        self.embedding = position_table(ranges, width) if embedded else None

    def copies(self) -> tuple[int, ...]:
        return (self.ranges,)

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
        return positions * self.ranges // self.context

    def _rows(self, positions: Tensor) -> list[Tensor]:
        """For every range, which rows stand in it."""
        return [(self._range(positions) == r).nonzero().flatten() for r in range(self.ranges)]
