"""The causal convolution as its definition reads."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, reverse: bool = False) -> Tensor:
    """As `whence.kernels.causal_conv`, differentiable by autograd, on any device."""
    taps = weight.T.flip(0) if reverse else weight.T
    overlap = len(taps) - 1
    padded = F.pad(x, (0, 0, 0, overlap) if reverse else (0, 0, overlap, 0))
    out = x.new_zeros(()) if bias is None else bias
    for k, tap in enumerate(taps):
        out = out + padded[:, k : k + x.shape[1]] * tap
    return F.silu(out).to(x.dtype)
