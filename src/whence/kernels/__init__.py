"""Kernels that torch does not have. Each folder holds a `naive.py`, the truth, beside its faster forms."""

from whence.kernels.causal_conv import causal_conv
from whence.kernels.selective_scan import selective_scan

__all__ = ["causal_conv", "selective_scan"]


def __dir__() -> list[str]:
    return __all__
