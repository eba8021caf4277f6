"""The selective scan as its definition reads, step by step. Slow, and the truth that every faster form is held to."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    *,
    z: Tensor | None = None,
    valid: Tensor | None = None,
    initial_state: Tensor | None = None,
    return_state: bool = False,
    reverse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """As `whence.kernels.selective_scan`, in the precision of the inputs, differentiable by autograd."""
    batch, length, channels = u.shape
    h = u.new_zeros(batch, channels, A.shape[1]) if initial_state is None else initial_state
    y = [torch.empty(0)] * length
    for t in reversed(range(length)) if reverse else range(length):
        moved = torch.exp(delta[:, t, :, None] * A) * h + (delta[:, t] * u[:, t])[..., None] * B[:, t, None, :]
        h = moved if valid is None else torch.where(valid[:, t, None, None], moved, h)
        y[t] = (h * C[:, t, None, :]).sum(-1)
        if D is not None:
            y[t] = y[t] + D * u[:, t]
        if z is not None:
            y[t] = y[t] * F.silu(z[:, t])
    out = torch.stack(y, 1)
    return (out, h) if return_state else out
