"""Attention that takes position from an encoding and order from the sequence.

Masks depend on the index of a token in the sequence, never on its position: positions are data and may be shuffled,
repeated or masked without changing the causal order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from whence.encodings.base import HOOKS, Count, Encoding
from whence.mixers import Kind, Mixer
from whence.models.layers import Linear


def visibility(
    kind: Kind,
    length: int,
    *,
    valid: Tensor | None = None,
    prefix: Tensor | None = None,
    device: torch.device | str | None = None,
) -> Tensor | None:
    """The attention mask, True for visible keys (last axis): bool (batch or 1, 1, length, length), or None.

    None means that no tensor is needed: everything when bidirectional, SDPA's `is_causal` when causal.
    `valid` (batch, length) is False at padding; `prefix` (batch,) is the number of leading tokens visible to all.
    Every query sees itself, padding included, so that no row of the softmax is empty.
    """
    if (kind == "prefix") != (prefix is not None):
        raise ValueError(f"attention={kind!r} {'needs' if prefix is None else 'takes no'} prefix lengths")
    if valid is None and prefix is None:
        return None
    visible = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
    if kind != "bidirectional":
        visible = causal(length, device)
    if prefix is not None:
        index = torch.arange(length, device=device)
        visible = visible | (index < prefix.to(index.device)[:, None])[:, None, None, :]
    if valid is not None:
        itself = torch.eye(length, dtype=torch.bool, device=device)
        visible = (visible & valid[:, None, None, :]) | itself
    return visible


def causal(length: int, device: torch.device | str | None = None) -> Tensor:
    """The triangle that `is_causal` stands for: bool (1, 1, length, length)."""
    return torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril()


@dataclass(frozen=True)
class AttentionContext:
    """Inputs of attention besides x. Layers that share an encoding share one context with its bias and mask."""

    positions: Tensor
    encoding: Encoding
    is_causal: bool
    """The mask is the causal triangle and no tensor holds it."""
    visible: Tensor | None
    """Bool mask; None if `is_causal` suffices or nothing is masked."""
    bias: Tensor | None
    """The encoding's bias, −inf where not visible. Replaces `visible`."""
    explicit: bool
    """Compute softmax(QKᵀ)V step by step. Always so for encodings that edit the logits."""

    @classmethod
    def of(
        cls, encoding: Encoding, positions: Tensor, kind: Kind, visible: Tensor | None = None, explicit: bool = False
    ) -> AttentionContext:
        """`visible` as `visibility(kind, ...)` returned it."""
        hooks = encoding.hooks()
        explicit = explicit or "score" in hooks
        is_causal = visible is None and kind == "causal"
        if is_causal and (explicit or "bias" in hooks):
            visible, is_causal = causal(positions.shape[1], positions.device), False
        bias = None
        if "bias" in hooks:
            bias = encoding.bias(positions, positions)
            bias = bias if visible is None else bias.masked_fill(~visible, -math.inf)
        return cls(positions, encoding, is_causal, visible, bias, explicit)

    def weighed(self, strength: Tensor) -> AttentionContext:
        """Weight keys by `strength`, (batch, length). Every query attends to itself with weight 1."""
        itself = torch.eye(strength.shape[1], dtype=torch.bool, device=strength.device)
        log_strength = strength.log()[:, None, None, :].masked_fill(itself, 0.0)
        bias = log_strength if self.bias is None else self.bias + log_strength
        return replace(self, bias=bias if self.visible is None else bias.masked_fill(~self.visible, -math.inf))


class Attention(Mixer):
    """Multi-head self-attention.

    The projections carry no bias: the norm before them has one already, which reaches q, k and v as W·β, so a head
    can still attend by position alone; and biases after the softmax would only add a constant.
    """

    hooks = tuple(hook for hook in HOOKS if hook != "interleave")
    kinds = ("causal", "bidirectional", "prefix")

    def __init__(self, d_model: Count, heads: Count, dropout: float = 0.0, out_scale: float = 1.0) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} is not divisible by heads={heads}")
        self.heads, self.dropout = heads, dropout
        self.qkv = Linear(d_model, 3 * d_model, bias=False)
        self.out = Linear(d_model, d_model, bias=False, scale=out_scale)

    @classmethod
    def contexts(
        cls,
        encodings: Sequence[Encoding],
        positions: Tensor,
        kind: Kind,
        *,
        valid: Tensor | None = None,
        prefix: Tensor | None = None,
        explicit: bool = False,
    ) -> list[AttentionContext]:
        """valid: bool, or float: how strongly the others attend to each token (its weight before normalisation)."""
        strength = None
        if valid is not None and valid.is_floating_point():
            strength, valid = valid, valid > 0
        visible = visibility(kind, positions.shape[1], valid=valid, prefix=prefix, device=positions.device)
        contexts = [AttentionContext.of(encoding, positions, kind, visible, explicit) for encoding in encodings]
        return contexts if strength is None else [context.weighed(strength) for context in contexts]

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        split = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in split.unbind(2))
        q, k = context.encoding.rotate(q, k, context.positions)
        mix = self._explicit if context.explicit else self._fused
        return self.out(mix(q, k, v, context).transpose(1, 2).flatten(2))

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Tensor:
        mask = context.visible if context.bias is None else context.bias.to(q.dtype)
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, context.is_causal)

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Tensor:
        positions, visible, bias = context.positions, context.visible, context.bias
        logits = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if "score" in context.encoding.hooks():
            attend = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=q.device) if visible is None else visible
            logits = context.encoding.score(logits, q, positions, positions, attend)
        if bias is not None:
            logits = logits + bias
        elif visible is not None:
            logits = logits.masked_fill(~visible, -math.inf)
        weights = torch.softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
        return F.dropout(weights, self.dropout, self.training).to(v.dtype) @ v
