"""Tensors as the kernels want them: dense last axes, channels in whole groups of lanes, large pages for large ones."""

from __future__ import annotations

import ctypes
import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from whence.kernels.simd import WIDTH

LARGE = 4 << 20  # bytes; the system hands out pages of 2 MiB
PAGE = 4096
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def dense(tensor: Tensor) -> Tensor:
    """Neighbours along the last axis are neighbours in memory; other axes may have any stride."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def whole_groups(tensor: Tensor) -> Tensor:
    """The last axis, channels, filled up with zeros to a multiple of the lanes."""
    spare = -tensor.shape[-1] % WIDTH
    return F.pad(tensor, (0, spare)) if spare else dense(tensor)


def cut(tensor: Tensor, channels: int) -> Tensor:
    """The opposite."""
    return tensor if tensor.shape[-1] == channels else tensor[..., :channels].contiguous()


def room(*shape: int, dtype: torch.dtype) -> Tensor:
    """An empty tensor. If it is large, the system is asked for large pages.

    Tensors of many megabytes are fresh from the system every time, and each page is cleared at its first touch: with
    small pages that took as long as the scan itself. The request is a hint; refusing it costs nothing but time.
    """
    tensor = torch.empty(shape, dtype=dtype)
    if _libc and tensor.nbytes >= LARGE:
        start = -(-tensor.data_ptr() // PAGE) * PAGE
        size = tensor.data_ptr() + tensor.nbytes - start
        _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), 14)  # MADV_HUGEPAGE
    return tensor
