"""The selective scan in plain torch: for devices without a kernel of their own.

The inputs are taken apart with `unbind`, whose gradient is one `stack`. Indexing a step at a time would allocate and
add up a full-size gradient for every step.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    state: Tensor | None,
    reverse: bool,
    precision: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """→ y like u, last state in the given precision."""
    kind = u.dtype
    u, delta, A, B, C = (tensor.to(precision) for tensor in (u, delta, A, B, C))
    h = u.new_zeros(u.shape[0], u.shape[2], A.shape[1]) if state is None else state.to(precision)
    steps = list(zip(delta.unbind(1), (delta * u).unbind(1), B.unbind(1), C.unbind(1), strict=True))
    y = []
    with torch.autocast(u.device.type, enabled=False):  # it would turn the products with C into half precision
        for dt, x, b, c in reversed(steps) if reverse else steps:
            h = torch.exp(dt[..., None] * A) * h + x[..., None] * b[:, None]
            y.append((h @ c[..., None]).squeeze(-1))
    out = torch.stack(y[::-1] if reverse else y, 1)
    return (out if D is None else out + D * u).to(kind), h
