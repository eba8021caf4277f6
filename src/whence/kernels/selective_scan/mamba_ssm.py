"""mamba-ssm's CUDA kernel, when that package is installed."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

from torch import Tensor


@cache
def installed() -> bool:
    return importlib.util.find_spec("mamba_ssm") is not None


def scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor]:
    """→ y, last state. The kernel wants (batch, channels, length), runs forward only and starts from zero."""
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn  # pyright: ignore[reportMissingImports]

    def turned(tensor: Tensor) -> Tensor:
        return (tensor.flip(1) if reverse else tensor).float().transpose(1, 2).contiguous()

    call: Any = selective_scan_fn
    skip = None if D is None else D.float()
    y, last = call(turned(u), turned(delta), A.float(), turned(B), turned(C), skip, return_last_state=True)
    y = y.transpose(1, 2).to(u.dtype)
    return (y.flip(1) if reverse else y), last
