"""The selective scan on devices without a kernel of ours: in plain torch, or by the CUDA kernel of mamba-ssm."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache

import torch
from torch import Tensor


def torch_scan(
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
    """→ y like u, last state in the given precision.

    The inputs are taken apart with `unbind`, whose gradient is one `stack`. Indexing a step at a time would allocate
    and add up a full-size gradient for every step.
    """
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


@cache
def mamba_ssm_installed() -> bool:
    return importlib.util.find_spec("mamba_ssm") is not None


def mamba_ssm_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor]:
    """→ y, last state. The kernel wants (batch, channels, length), runs forward only and starts from zero."""
    interface = importlib.import_module("mamba_ssm.ops.selective_scan_interface")

    def turned(tensor: Tensor) -> Tensor:
        return (tensor.flip(1) if reverse else tensor).float().transpose(1, 2).contiguous()

    skip = None if D is None else D.float()
    arguments = (turned(u), turned(delta), A.float(), turned(B), turned(C), skip)
    y, last = interface.selective_scan_fn(*arguments, return_last_state=True)
    y = y.transpose(1, 2).to(u.dtype)
    return (y.flip(1) if reverse else y), last
