"""What an encoding may do. Position is data: every hook receives it as a tensor and never invents it.

Positions have shape (batch, length), or (batch, length, axes) for grids, integer or float; the batch size
may be 1 when all rows share them. An encoding overrides only the hooks it uses:

    embed(x, positions)                               added to the token embeddings
    rotate(q, k, positions)                           changes queries and keys
    bias(positions_q, positions_k)                    added to the attention logits, independent of content
    score(logits, q, positions_q, positions_k, visible)   edits the logits, depends on content

The class attributes declare what the conformance suite then checks.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from whence.registry import Variant

Shift = Literal["invariant", "absolute", "ignored"]
HOOKS = ("embed", "rotate", "bias", "score")


class Encoding(Variant, nn.Module):
    """Where position enters a model. One instance serves all layers unless `per_layer` is set."""

    beyond: ClassVar[str]
    """What happens past the training length, in a few words."""
    reference: ClassVar[str]
    axes: int = 1
    """How many position axes it reads: 1, or 2 for grids."""
    causal_only: ClassVar[bool] = False
    per_layer: ClassVar[bool] = False
    admits_transforms: ClassVar[bool] = True
    """Whether editing the positions (randomized, shifted, ...) can change what it does."""

    @property
    def shift(self) -> Shift:
        """How attention scores respond when every position moves by the same amount."""
        return "invariant"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: (batch, length, d_model)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """q, k: (batch, heads, length, head_dim)."""
        return q, k

    def bias(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        """→ (batch or 1, heads, length_q, length_k), float32, added after the scaling by 1/√head_dim."""
        raise NotImplementedError(f"{type(self).__name__} has no bias hook: ask hooks() first")

    def score(self, logits: Tensor, q: Tensor, positions_q: Tensor, positions_k: Tensor, visible: Tensor) -> Tensor:
        """logits: (batch, heads, length_q, length_k), scaled; visible: bool, broadcastable to it."""
        return logits

    @classmethod
    def hooks(cls) -> tuple[str, ...]:
        """The hooks this encoding overrides: where position enters."""
        return tuple(hook for hook in HOOKS if getattr(cls, hook) is not getattr(Encoding, hook))


def distances(positions_q: Tensor, positions_k: Tensor) -> Tensor:
    """Signed distance query − key, (batch, 1, length_q, length_k): positive where the key lies behind."""
    return (positions_q[:, None, :, None] - positions_k[:, None, None, :])


def precise(positions: Tensor) -> Tensor:
    """Positions in the widest float the device has: angles of far positions lose digits in float32."""
    return positions.to(torch.float32 if positions.device.type == "mps" else torch.float64)
