"""Memory for the kernels' large results, used again instead of asked for again.

A tensor of many megabytes is fresh from the system every time it is made, and the system clears its pages at their
first touch: from 16,384 tokens on that took as long as the scan itself. So blocks whose tensor has died are kept, up to
POOL_SIZE bytes in all, and given to the next tensor that fits.
"""

from __future__ import annotations

import math
import weakref

import numpy as np
import torch
from torch import Tensor

LARGE = 4 << 20  # bytes; below it the C library does as well
POOL_SIZE = 1 << 30
_free: dict[int, np.ndarray] = {}


def room(*shape: int, dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return torch.empty(shape, dtype=dtype, device="cpu")
    block = _taken(size)
    used = block[:size]  # torch holds on to this view for as long as any tensor needs the memory
    weakref.finalize(used, _give_back, block).atexit = False
    return torch.from_numpy(used).view(dtype).view(shape)


def _taken(size: int) -> np.ndarray:
    """The smallest free block that fits and is not twice too large, or a new one."""
    fitting = [block for block in list(_free.values()) if size <= block.nbytes < 2 * size]
    for block in sorted(fitting, key=lambda block: block.nbytes):
        if _free.pop(id(block), None) is not None:  # else another thread was quicker
            return block
    return np.empty(size, np.uint8)  # numpy asks for large pages itself


def _give_back(block: np.ndarray) -> None:
    """May be called at any moment, by any thread: no locks, only single steps on a dictionary."""
    _free[id(block)] = block
    while sum(free.nbytes for free in list(_free.values())) > POOL_SIZE:
        _free.pop(next(iter(_free), 0), None)  # the one that waited longest
