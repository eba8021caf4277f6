"""Functional interpolation: a learned function of distance relative to the query's position."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count, Encoding, Shift, distances, precise


class FIRE(Encoding):
    """Add an MLP of ln(1 + c·d) / ln(1 + c·max(i, L)): the distance relative to the position of the query."""

    extrapolation = "relative distances stay in the range seen in training"
    reference = "Li et al., 2024 (FIRE)"

    def __init__(
        self,
        heads: Count,
        train_length: Count = 2048,
        *,
        d_hidden: Annotated[int, Field(ge=1, le=2**16, description="hidden width of the MLP")] = 32,
        c: Annotated[float, Field(gt=0, le=1e9, description="initial value of c, which is learned")] = 0.1,
        threshold: Annotated[
            float,
            Field(gt=0, le=1e9, description="initial value of L, as a fraction of the training length; L is learned"),
        ] = 0.25,
    ) -> None:
        super().__init__()
        self.start = (math.log(c), math.log(threshold * train_length))
        self.log_c, self.log_threshold = (nn.Parameter(torch.full((1,), value)) for value in self.start)
        self.inner, self.outer = nn.Linear(1, d_hidden), nn.Linear(d_hidden, heads)

    def reset_parameters(self) -> None:
        nn.init.constant_(self.log_c, self.start[0])
        nn.init.constant_(self.log_threshold, self.start[1])
        self.inner.reset_parameters()
        self.outer.reset_parameters()

    @property
    def shift(self) -> Shift:
        return "absolute"

    def shares(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        """(batch, 1, length_q, length_k): 0 at the query, 1 at position 0 once i > L."""
        c, threshold = self.log_c.float().exp(), self.log_threshold.float().exp()
        away = distances(positions_q, positions_k).abs().float()
        i = precise(positions_q).float()[:, None, :, None]
        return torch.log1p(c * away) / torch.log1p(c * torch.maximum(i, threshold))

    def bias(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        shares = self.shares(positions_q, positions_k).to(self.inner.weight.dtype)
        return self.outer(self.inner(shares.movedim(1, -1)).relu()).movedim(-1, 1).float()
