"""Contextual positions: distance as a gated count of keys."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count, Encoding, Shift, interpolate


class CoPE(Encoding):
    """Count the keys between query and key, weighted by gates of the query, and embed the count."""

    extrapolation = "counts are clamped at the largest learned count"
    reference = "Golovneva et al., 2024"
    causal_only = True
    per_layer = True
    admits_transforms = False

    def __init__(
        self,
        head_dim: Count,
        *,
        counts: Annotated[
            int, Field(ge=2, le=2**12, description="number of learned counts, from 0 to counts − 1")
        ] = 64,
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(counts, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.table)  # as published: contextual positions have no effect at first

    @property
    def shift(self) -> Shift:
        return "ignored"

    def score(self, logits: Tensor, q: Tensor, positions_q: Tensor, positions_k: Tensor, visible: Tensor) -> Tensor:
        gates = logits.float().sigmoid() * visible  # a masked key must not be counted
        counts = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.table) - 1)
        per_count = q.float() @ self.table.float().T
        return (logits.float() + interpolate(counts, lambda whole: per_count.gather(-1, whole))).to(logits.dtype)
