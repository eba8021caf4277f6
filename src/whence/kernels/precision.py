"""In which precision kernels compute."""

from __future__ import annotations

import torch
from torch import Tensor


def precision(*tensors: Tensor | None) -> torch.dtype:
    """Double if any input is, single otherwise (also for half-precision inputs)."""
    double = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if double else torch.float32
