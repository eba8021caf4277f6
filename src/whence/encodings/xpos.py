"""Rotary positions whose magnitudes decay with distance."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.encodings._rotary import Pairing, geometric, require_pairs, turn
from whence.encodings.base import Count, Encoding, on_axes, precise


class XPos(Encoding):
    """RoPE, times ζᵢ^(distance/512): the scores of high-frequency pairs decay with distance."""

    extrapolation = "scores keep decaying; a span that overflows the number format raises an error"
    reference = "Sun et al., 2022"
    examples = ("pairing=adjacent",)
    causal_only = True

    def __init__(
        self,
        head_dim: Count,
        *,
        base: Annotated[float, Field(gt=1, le=1e12, description="base b of the frequencies θᵢ = b^(−2i/d)")] = 10_000.0,
        pairing: Pairing = "halves",
        scale_base: Annotated[
            float, Field(gt=0, le=1e12, description="distance over which the scores of pair i decay by ζᵢ")
        ] = 512.0,
    ) -> None:
        super().__init__()
        require_pairs(head_dim)
        self.head_dim, self.base, self.pairing, self.scale_base = head_dim, base, pairing, scale_base

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        p = precise(on_axes(positions))[:, None, :, None]
        low, high = p.amin(2, keepdim=True), p.amax(2, keepdim=True)
        self._refuse_overflow(high - low, q.dtype)
        channels = torch.arange(0, self.head_dim, 2, dtype=p.dtype, device=p.device)
        zeta = (channels + 0.4 * self.head_dim) / (1.4 * self.head_dim)
        # Any centre gives the same scores; the middle of the row keeps both factors near 1.
        fade = zeta ** ((p - ((low + high + 1) / 2).floor()) / self.scale_base)
        angles = p * geometric(self.head_dim, self.base).to(p)
        cos, sin = angles.cos(), angles.sin()
        rotated_q = turn(q, (cos * fade).float(), (sin * fade).float(), self.pairing)
        rotated_k = turn(k, (cos / fade).float(), (sin / fade).float(), self.pairing)
        return rotated_q, rotated_k

    def _refuse_overflow(self, span: Tensor, dtype: torch.dtype) -> None:
        """A factor grows with half the span: past the format's range, scores would be inf · 0."""
        if torch.compiler.is_compiling() or span.is_meta:
            return
        widest = 1.8 * self.scale_base * math.log(torch.finfo(dtype).max) / math.log(1.4 / 0.4)
        if (span > widest).any():
            raise ValueError(
                f"xpos: positions span {span.max().item():g}, more than {widest:g} overflows {dtype}; raise scale_base"
            )
