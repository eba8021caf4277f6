"""Random, ordered positions from a span wider than any sequence."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.encodings.base import Count
from whence.encodings.transforms import Transform, drawing_device, roomy


class Randomized(Transform):
    """Replace the positions by random ones from [0, span) in the same order, in training and in evaluation.

    The k-th smallest distinct position of a row becomes the k-th smallest of its draw, so equal positions stay
    equal. One draw serves a whole row; a row shared by the batch, (1, length), is drawn once for all. On a grid
    every axis is drawn by itself.
    """

    reference = "Ruoss et al., 2023"

    def __init__(
        self,
        max_length: Count | None = None,
        *,
        span: Annotated[int, Field(ge=2, le=2**20, description="positions are drawn from 0 to span − 1")] = 2048,
    ) -> None:
        if max_length is not None and max_length > span:
            raise ValueError(f"randomized: {span=} has no room for {max_length=} distinct positions; raise span")
        self.span = span

    def __call__(self, positions: Tensor, *, training: bool, generator: torch.Generator | None = None) -> Tensor:
        lines = positions.movedim(1, -1)  # the length last: a row, or a row per axis
        ranks = dense_ranks(lines)
        distinct = ranks.amax(-1, keepdim=True) + 1
        length = lines.shape[-1]
        if length > self.span and (distinct > self.span).any():
            raise ValueError(f"randomized: {distinct.max().item()} distinct positions do not fit span={self.span}")
        keys = torch.rand(*lines.shape[:-1], self.span, generator=generator, device=drawing_device(lines, generator))
        # The largest of random keys are a uniform sample, in random order, so its first `distinct` are one too.
        sample = keys.topk(min(length, self.span)).indices.to(lines.device)
        unused = torch.arange(sample.shape[-1], device=lines.device) >= distinct
        drawn = sample.masked_fill(unused, self.span).sort(-1).values.gather(-1, ranks)
        return drawn.movedim(-1, 1).to(roomy(positions).dtype)

    def lengths(self, train_length: int, max_length: int) -> tuple[int, int]:
        return self.span, self.span


def dense_ranks(lines: Tensor) -> Tensor:
    """For each entry, how many distinct values of its line are smaller."""
    values, order = lines.sort(-1)
    steps = torch.zeros_like(order)
    steps[..., 1:] = values[..., 1:] != values[..., :-1]
    return torch.zeros_like(order).scatter(-1, order, steps.cumsum(-1))
