"""The interface of positional encodings. Position is data: every hook receives positions as a tensor.

Positions have shape (batch, length), or (batch, length, axes) for grids, integer or float; the batch size
may be 1 when all rows share them. An encoding overrides only the hooks it uses:

    embed(x, positions)                               added to the token embeddings
    rotate(q, k, positions)                           changes queries and keys
    bias(positions_q, positions_k)                    added to the attention logits, independent of content
    score(logits, q, positions_q, positions_k, visible)   edits the logits, depends on content
    interleave(x, positions, valid) / extract(x, interleaving)   inserts tokens between the others; extracts them

The conformance suite checks the class attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings._interleaving import Interleaving
from whence.registry import Variant, construction

Shift = Literal["invariant", "absolute", "ignored"]
Count = Annotated[int, Field(ge=1)]
HOOKS = ("embed", "rotate", "bias", "score", "interleave")


CALLS = {
    "embed": [
        ">>> encoding.embed(torch.zeros(1, 6, 16), positions).shape  # (batch, length, d_model)",
        "torch.Size([1, 6, 16])",
    ],
    "rotate": [
        ">>> q, k = torch.randn(2, 1, 2, 6, 8)  # each (batch, heads, length, head_dim)",
        ">>> q, k = encoding.rotate(q, k, positions)",
        ">>> q.shape",
        "torch.Size([1, 2, 6, 8])",
    ],
    "bias": [
        ">>> encoding.bias(positions, positions).shape  # (batch, heads, queries, keys)",
        "torch.Size([1, 2, 6, 6])",
    ],
    "score": [
        ">>> logits, q = torch.randn(1, 2, 6, 6), torch.randn(1, 2, 6, 8)",
        ">>> visible = torch.ones(6, 6, dtype=torch.bool).tril()",
        ">>> encoding.score(logits, q, positions, positions, visible).shape",
        "torch.Size([1, 2, 6, 6])",
    ],
    "interleave": [
        ">>> longer, _, interleaving = encoding.interleave(torch.randn(1, 6, 16), positions)",
        ">>> encoding.extract(longer, interleaving).shape  # (batch, count, d_model)",
        "torch.Size([1, 16, 16])",
    ],
}
"""By hook, the lines of an example."""


class Encoding(Variant, nn.Module):
    """Base class of positional encodings. One instance serves all layers unless `per_layer` is set.

    A subclass overrides the hooks that it uses: `embed`, `rotate`, `bias`, `score`, or
    `interleave` and `extract`. Positions are tensors of shape (batch, length), or (batch, length, axes) for grids.

    Example:
        >>> whence.encodings.ALiBi.hooks()
        ('bias',)
    """

    extrapolation: ClassVar[str]
    """Behaviour beyond the training length, as a short phrase."""
    reference: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    """Further options that the conformance suite tests, as written on the command line."""
    axes: int = 1
    """Number of position axes: 1, or 2 for grids."""
    causal_only: bool = False
    """Whether keys ahead of the query must be masked. Depends on the options of an instance."""
    longest: int | None = None
    """Maximum number of positions, beyond which the encoding raises ValueError; None: unlimited."""
    per_layer: ClassVar[bool] = False
    admits_transforms: ClassVar[bool] = True
    """Whether transforms of positions (randomized, shifted, …) can have an effect."""

    @property
    def shift(self) -> Shift:
        """How attention scores respond to a translation of all positions."""
        return "invariant"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: (batch, length, d_model)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """q, k: (batch, heads, length, head_dim)."""
        return q, k

    def bias(self, positions_q: Tensor, positions_k: Tensor) -> Tensor:
        """→ (batch or 1, heads, length_q, length_k), float32, added after the scaling by 1/√head_dim."""
        raise NotImplementedError(f"{type(self).__name__} has no bias hook; see hooks()")

    def score(self, logits: Tensor, q: Tensor, positions_q: Tensor, positions_k: Tensor, visible: Tensor) -> Tensor:
        """logits: (batch, heads, length_q, length_k), scaled; visible: bool, broadcastable to it."""
        return logits

    def interleave(
        self, x: Tensor, positions: Tensor, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Interleaving]:
        """Returns the longer sequence, its positions, and the permutation that merged them. valid: False at padding."""
        raise NotImplementedError(f"{type(self).__name__} has no interleave hook; see hooks()")

    def extract(self, x: Tensor, interleaving: Interleaving) -> Tensor:
        """The inserted tokens in the output of the model."""
        return interleaving.inserted(x)

    @classmethod
    def usage(cls) -> list[str]:
        built = [">>> positions = torch.arange(6)[None]", f">>> encoding = {construction(cls, 'whence.encodings')}"]
        calls = [line for hook in cls.hooks() for line in CALLS[hook]]
        return [*built, *(calls or [">>> encoding.hooks()", "()"])]

    @classmethod
    def hooks(cls) -> tuple[str, ...]:
        """Names of the hooks that this encoding overrides."""
        return tuple(hook for hook in HOOKS if getattr(cls, hook) is not getattr(Encoding, hook))


def on_axes(positions: Tensor, axes: int = 1) -> Tensor:
    """The positions, after a check of their shape, because a wrong shape could broadcast silently."""
    if positions.ndim != (2 if axes == 1 else 3) or (axes > 1 and positions.shape[-1] != axes):
        wanted = "(batch, length)" if axes == 1 else f"(batch, length, {axes})"
        raise ValueError(f"positions have shape {tuple(positions.shape)}, expected {wanted}")
    return positions


def precise(positions: Tensor) -> Tensor:
    """Positions in the widest float of the device, because large angles lose precision in float32."""
    return positions.to(torch.float32 if positions.device.type == "mps" else torch.float64)


def distances(positions_q: Tensor, positions_k: Tensor) -> Tensor:
    """Signed distance query − key, (batch, 1, length_q, length_k): positive for earlier keys.

    Subtracted in int64 or the widest float, so that differences of large positions are exact.
    """
    q, k = on_axes(positions_q), on_axes(positions_k)
    widen = precise if q.is_floating_point() or k.is_floating_point() else Tensor.long
    return widen(q)[:, None, :, None] - widen(k)[:, None, None, :]


def interpolate(at: Tensor, lookup: Callable[[Tensor], Tensor]) -> Tensor:
    """Values of `lookup`, which takes integer indices, at fractional indices by linear interpolation.

    Uses the ceiling rather than floor + 1, so that the last row needs no next row.
    """
    if not at.is_floating_point():
        return lookup(at).float()
    below = at.floor()
    low, high = lookup(below.long()).float(), lookup(at.ceil().long()).float()
    return low + (high - low) * (at - below).float()
