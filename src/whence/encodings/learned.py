"""A table with one learned vector per position, and an explicit policy for positions beyond it."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from whence.encodings.base import Count, Encoding, Shift, interpolate, on_axes, precise


class Learned(Encoding):
    """Add a learned vector per position to the token embeddings; fractions interpolate between rows."""

    extrapolation = "by out_of_range: an error, the last row, or rows without training"
    reference = "Gehring et al., 2017; Devlin et al., 2019"
    examples = ("out_of_range=error", "out_of_range=clamp")

    def __init__(
        self,
        d_model: Count,
        train_length: Count,
        max_length: Count | None = None,
        *,
        out_of_range: Annotated[
            Literal["error", "clamp", "untrained"],
            Field(description="beyond the training length: raise an error, use the last row, or use untrained rows"),
        ] = "untrained",
        init_std: Annotated[
            float,
            Field(
                gt=0,
                le=1e6,
                description="standard deviation of the initial rows; 0.7 matches the norm of token embeddings",
            ),
        ] = 0.7,
    ) -> None:
        super().__init__()
        self.out_of_range, self.init_std = out_of_range, init_std
        rows = max(train_length, max_length or 0) if out_of_range == "untrained" else train_length
        self.longest = None if out_of_range == "clamp" else rows
        self.table = nn.Parameter(torch.empty(rows, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=self.init_std)

    @property
    def shift(self) -> Shift:
        return "absolute"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        at = precise(positions) if on_axes(positions).is_floating_point() else positions.long()
        if self.out_of_range == "clamp":
            at = at.clamp(0, len(self.table) - 1)
        else:
            self._refuse_outside(at)
        rows = interpolate(at[..., None], lambda index: F.embedding(index.squeeze(-1), self.table))
        return (x.float() + rows).to(x.dtype)

    def _refuse_outside(self, at: Tensor) -> None:
        if torch.compiler.is_compiling() or at.is_meta:
            return  # without values; the lookup itself raises for a missing row
        last = len(self.table) - 1
        outside = at[~((at >= 0) & (at <= last))]
        if outside.numel():
            raise ValueError(
                f"position {outside[0].item():g} is outside the learned table of {last + 1} rows (0 to {last}); "
                f"out_of_range={self.out_of_range!r}: raise max_length with 'untrained', or choose 'clamp'"
            )
