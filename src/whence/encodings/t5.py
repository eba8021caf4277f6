"""T5's learned bias per bucket of distances."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from whence.encodings.base import Count, Encoding, distances, interpolate


class T5(Encoding):
    """A learned bias per head and distance bucket: exact when near, logarithmic when far."""

    extrapolation = "all distances beyond max_distance share the last bucket"
    reference = "Raffel et al., 2020"
    examples = ("sides=past", "sides=both,buckets=8,max_distance=20")

    def __init__(
        self,
        heads: Count,
        causal: bool = False,
        *,
        sides: Annotated[
            Literal["auto", "both", "past"],
            Field(
                description="both: half of the buckets for later keys. past: all for earlier keys, causal models only. "
                "auto: past in a causal model, otherwise both"
            ),
        ] = "auto",
        buckets: Annotated[int, Field(ge=4, le=2**16, description="number of buckets")] = 32,
        max_distance: Annotated[
            int, Field(ge=2, le=2**20, description="distance from which on all keys share the last bucket")
        ] = 128,
    ) -> None:
        super().__init__()
        if sides == "auto":
            sides = "past" if causal else "both"
        self.sides, self.causal_only = sides, sides == "past"
        self.per_side = buckets // 2 if sides == "both" else buckets
        if max_distance <= self.per_side // 2:
            exact = self.per_side // 2
            raise ValueError(
                f"{max_distance=} must exceed {exact}, the number of exact distances of {buckets=} with {sides=}"
            )
        self.starts = bucket_starts(self.per_side, max_distance)
        self.table = nn.Parameter(torch.empty(2 * self.per_side if sides == "both" else buckets, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def buckets_of(self, away: Tensor) -> Tensor:
        """The bucket of each whole distance query − key."""
        starts = torch.tensor(self.starts, device=away.device)
        if self.sides == "past":
            return torch.bucketize(away.clamp(min=0), starts, right=True)
        return torch.bucketize(away.abs(), starts, right=True) + self.per_side * (away < 0)

    def bias(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        away = distances(positions_q, positions_k)
        return interpolate(away, lambda whole: F.embedding(self.buckets_of(whole)[:, 0], self.table).movedim(-1, 1))


def bucket_starts(buckets: int, max_distance: int) -> list[int]:
    """The smallest distance in bucket 1, 2, ...

    The far half starts bucket exact + k where ln(d/exact) / ln(max/exact) · wide ≥ k. Both sides of that are
    raised to whole powers here, because the logarithm is an ulp away from the wrong bucket at powers of two.
    """
    exact = buckets // 2
    wide = buckets - exact
    starts = list(range(1, exact + 1))
    for k in range(1, wide):
        distance = max(starts[-1], int(exact * (max_distance / exact) ** (k / wide)) - 1)
        while distance**wide * exact**k < max_distance**k * exact**wide:
            distance += 1
        starts.append(distance)
    return starts
