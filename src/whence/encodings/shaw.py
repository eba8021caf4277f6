"""Relative key embeddings."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count, Encoding, distances, interpolate


class Shaw(Encoding):
    """Add the product of the query with a learned vector per clipped distance: logits + q·a(j−i)/√d.

    The keys' half of the paper; its relative values, which it found to add nothing, are left out.
    """

    extrapolation = "all distances beyond max_distance share one vector per side"
    reference = "Shaw et al., 2018"
    per_layer = True

    def __init__(
        self,
        head_dim: Count,
        *,
        max_distance: Annotated[
            int, Field(ge=1, le=2**12, description="distance at which distances are clipped, on both sides")
        ] = 16,
    ) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.table = nn.Parameter(torch.empty(2 * max_distance + 1, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.table)

    def score(self, logits: Tensor, q: Tensor, positions_q: Tensor, positions_k: Tensor, visible: Tensor) -> Tensor:
        per_row = q.float() @ self.table.float().T / q.shape[-1] ** 0.5
        behind = distances(positions_q, positions_k)
        rows = self.max_distance - behind.clamp(-self.max_distance, self.max_distance)
        extra = interpolate(rows, lambda whole: per_row.gather(-1, whole.expand(logits.shape)))
        return (logits.float() + extra).to(logits.dtype)
