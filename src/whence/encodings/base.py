"""What an encoding may do. Position is data: every hook receives it as a tensor and never invents it.

Positions have shape (batch, length), or (batch, length, axes) for grids, integer or float; the batch size
may be 1 when all rows share them. An encoding overrides only the hooks it uses:

    embed(x, positions)                               added to the token embeddings
    rotate(q, k, positions)                           changes queries and keys
    bias(positions_q, positions_k)                    added to the attention logits, independent of content
    score(logits, q, positions_q, positions_k, visible)   edits the logits, depends on content
    interleave(x, positions, valid) / extract(x, interleaving)   puts its own tokens between the others; takes them out

The class attributes declare what the conformance suite then checks.
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
    """Where position enters a model. One instance serves all layers unless `per_layer` is set.

    Base class of all encodings. A subclass overrides the hooks that it uses: `embed`, `rotate`, `bias`, `score`, or
    `interleave` and `extract`. Positions are tensors of shape (batch, length), or (batch, length, axes) for grids.

    Example:
        >>> whence.encodings.ALiBi.hooks()
        ('bias',)
    """

    extrapolation: ClassVar[str]
    """What happens past the training length, in a few words."""
    reference: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    """Options, besides the defaults, that behave differently, as a user writes them. The conformance suite runs all."""
    axes: int = 1
    """How many position axes it reads: 1, or 2 for grids."""
    causal_only: bool = False
    """Keys ahead of the query must be hidden. May depend on the options, so ask the instance."""
    longest: int | None = None
    """How many positions it has room for; None: any. Past it, it refuses."""
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

    def interleave(
        self, x: Tensor, positions: Tensor, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Interleaving]:
        """→ a longer sequence, the positions in it, and what tells its tokens apart. valid: False at padding."""
        raise NotImplementedError(f"{type(self).__name__} has no interleave hook: ask hooks() first")

    def extract(self, x: Tensor, interleaving: Interleaving) -> Tensor:
        """What `interleave` put in, after the model has read it."""
        return interleaving.inserted(x)

    @classmethod
    def usage(cls) -> list[str]:
        built = [">>> positions = torch.arange(6)[None]", f">>> encoding = {construction(cls, 'whence.encodings')}"]
        calls = [line for hook in cls.hooks() for line in CALLS[hook]]
        return [*built, *(calls or [">>> encoding.hooks()", "()"])]

    @classmethod
    def hooks(cls) -> tuple[str, ...]:
        """The hooks this encoding overrides: where position enters."""
        return tuple(hook for hook in HOOKS if getattr(cls, hook) is not getattr(Encoding, hook))


def on_axes(positions: Tensor, axes: int = 1) -> Tensor:
    """The positions, once their shape is known to be right: a wrong one would broadcast into nonsense."""
    if positions.ndim != (2 if axes == 1 else 3) or (axes > 1 and positions.shape[-1] != axes):
        wanted = "(batch, length)" if axes == 1 else f"(batch, length, {axes})"
        raise ValueError(f"positions have shape {tuple(positions.shape)}; this encoding reads {wanted}")
    return positions


def precise(positions: Tensor) -> Tensor:
    """Positions in the widest float the device has: angles of far positions lose digits in float32."""
    return positions.to(torch.float32 if positions.device.type == "mps" else torch.float64)


def distances(positions_q: Tensor, positions_k: Tensor) -> Tensor:
    """Signed distance query − key, (batch, 1, length_q, length_k): positive where the key lies behind.

    Subtracted in int64 or the widest float, so that neighbours stay neighbours a billion positions out.
    """
    q, k = on_axes(positions_q), on_axes(positions_k)
    widen = precise if q.is_floating_point() or k.is_floating_point() else Tensor.long
    return widen(q)[:, None, :, None] - widen(k)[:, None, None, :]


def interpolate(at: Tensor, lookup: Callable[[Tensor], Tensor]) -> Tensor:
    """A table that `lookup` reads at whole indices, read at fractional ones: linear between the neighbours.

    Ceiling rather than floor + 1, so that the last row needs no row after it.
    """
    if not at.is_floating_point():
        return lookup(at).float()
    below = at.floor()
    low, high = lookup(below.long()).float(), lookup(at.ceil().long()).float()
    return low + (high - low) * (at - below).float()
