"""Sparse codes as their definitions read: each line here is what the kernels must give."""

from __future__ import annotations

import torch
from torch import Tensor


def top_k(scores: Tensor, k: int) -> Tensor:
    """As `whence.kernels.sparse_code.top_k`, on any device."""
    return scores.detach().topk(k, sorted=False).indices


def gathered(x: Tensor, weight: Tensor, bias: Tensor, indices: Tensor) -> Tensor:
    """As `whence.kernels.sparse_code.gathered`, differentiable by autograd, on any device."""
    return torch.einsum("nw,nkw->nk", x, weight[indices]) + bias[indices]


def decode(values: Tensor, indices: Tensor, weight: Tensor) -> Tensor:
    """As `whence.kernels.sparse_code.decode`, differentiable by autograd, on any device."""
    return torch.einsum("nk,nkw->nw", values, weight[indices])
