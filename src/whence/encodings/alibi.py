"""Attention with linear biases."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count, Encoding, distances

BLOCKED = -1e30
"""Blocks a key for certain, yet stays finite: a row with every key blocked still has a softmax."""


class ALiBi(Encoding):
    """Subtract mₕ·distance from the logits, with a slope mₕ per head."""

    extrapolation = "the penalty keeps growing with distance"
    reference = "Press et al., 2022"
    examples = ("sides=past", "sides=split", "learnable=true,sharpness=2.5")

    def __init__(
        self,
        heads: Count,
        *,
        sides: Annotated[
            Literal["both", "past", "split"],
            Field(
                description="both: |i−j|. past: no penalty for later keys, causal models only. "
                "split: in each pair of heads, one attends only to earlier and one only to later keys"
            ),
        ] = "both",
        sharpness: Annotated[float, Field(gt=0, le=1e6, description="factor of all slopes")] = 1.0,
        learnable: Annotated[bool, Field(description="train the slopes, which stay positive")] = False,
    ) -> None:
        super().__init__()
        if sides == "split" and heads % 2:
            raise ValueError(f"sides='split' needs an even number of heads, got {heads}")
        self.sides, self.causal_only, self.learnable = sides, sides == "past", learnable
        rates = [s for s in slopes(heads // 2) for _ in range(2)] if sides == "split" else slopes(heads)
        self.start = [sharpness * rate for rate in rates]
        if learnable:
            self.log_slopes = nn.Parameter(torch.empty(heads))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.learnable:
            with torch.no_grad():
                self.log_slopes.copy_(torch.tensor(self.start).log())

    def bias(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        away = distances(positions_q, positions_k).float()
        rate = self.log_slopes.float().exp() if self.learnable else torch.tensor(self.start, device=away.device)
        rate = rate[:, None, None]
        if self.sides == "both":
            return -rate * away.abs()
        if self.sides == "past":
            return -rate * away.clamp(min=0)
        ahead = torch.arange(len(self.start), device=away.device)[:, None, None] % 2 == 1
        away = torch.where(ahead, -away, away)
        return torch.where(away >= 0, -rate * away, BLOCKED)


def slopes(heads: int) -> list[float]:
    """2^(−8h/n) for a power of two n; other counts take every other slope of the next list in addition."""
    whole = 2 ** int(math.log2(heads))
    regular = [2 ** (-8 * h / whole) for h in range(1, whole + 1)]
    return regular + [2 ** (-4 * h / whole) for h in range(1, 2 * (heads - whole), 2)]
