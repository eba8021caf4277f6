"""The smallest attention that uses every hook of an encoding, and the cases that the suites run it on."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.encodings import ENCODINGS
from whence.encodings.base import Encoding
from whence.registry import Choice

HEADS, HEAD_DIM, TRAIN_LENGTH, MAX_LENGTH = 4, 8, 16, 64
STRUCTURE = {
    "d_model": HEADS * HEAD_DIM,
    "heads": HEADS,
    "head_dim": HEAD_DIM,
    "causal": True,
    "train_length": TRAIN_LENGTH,
    "max_length": MAX_LENGTH,
}
CASES = [ENCODINGS.choose(f"{e.name}:{options}") for e in ENCODINGS for options in ("", *e.examples)]


def build(choice: Choice[Encoding]) -> Encoding:
    """An encoding away from its initial point, where a zero or a constant could hide a mistake."""
    torch.manual_seed(0)
    encoding = choice.build(**STRUCTURE)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return encoding


def line(encoding: Encoding, *starts: float, length: int = 8, dtype: torch.dtype = torch.long) -> Tensor:
    """Consecutive positions, one row per start; on a grid, the second axis runs backwards in steps of three."""
    rows = torch.stack([torch.arange(length) + start for start in starts]).to(dtype)
    return rows if encoding.axes == 1 else torch.stack([rows, 3 * (rows.amax(1, keepdim=True) - rows)], dim=-1)


def content(batch: int = 2, length: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, length, HEADS * HEAD_DIM, generator=generator)


def attention(encoding: Encoding, positions: Tensor, x: Tensor, causal: bool = True) -> Tensor:
    """Attention weights, (batch, heads, length, length or more), with fixed random projections."""
    generator = torch.Generator().manual_seed(2)
    width = x.shape[-1]
    w_q, w_k = torch.randn(2, width, width, generator=generator).to(x) / width**0.5
    x, interleaving = encoding.embed(x, positions), None
    if "interleave" in encoding.hooks():
        x, positions, interleaving = encoding.interleave(x, positions)
    q, k = ((x @ w).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for w in (w_q, w_k))
    q, k = encoding.rotate(q, k, positions)
    logits = q @ k.mT / HEAD_DIM**0.5
    if "bias" in encoding.hooks():
        logits = logits + encoding.bias(positions, positions)
    visible = torch.ones(logits.shape[-2:], dtype=torch.bool, device=x.device)
    visible = visible.tril() if causal else visible
    logits = encoding.score(logits, q, positions, positions, visible)
    weights = logits.masked_fill(~visible, float("-inf")).softmax(-1)
    if interleaving is None:
        return weights
    rows = interleaving.tokens(weights.transpose(1, 2)).transpose(
        1, 2
    )  # what tokens see: of each other first, then the rest
    keys = rows.permute(0, 3, 1, 2)
    return torch.cat([interleaving.tokens(keys), interleaving.inserted(keys)], 1).permute(0, 2, 3, 1)
