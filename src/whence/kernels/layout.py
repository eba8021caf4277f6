"""Tensors as the kernels want them: the last axis dense, and channels in whole groups of lanes."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from whence.kernels.simd import WIDTH


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
