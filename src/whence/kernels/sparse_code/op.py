"""The products with their gradients, which are the same products again: nothing of size (n, size) is ever made."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError


class ByFeature:
    """The indices (n, k) listed by feature instead of by sample: made when a gradient first asks, then kept."""

    def __init__(self, indices: Tensor, size: int) -> None:
        self.indices, self.size = indices, size

    @cached_property
    def lists(self) -> tuple[Tensor, Tensor, Tensor]:
        from whence.kernels.sparse_code import numba_cpu

        return numba_cpu.by_feature(self.indices, self.size)

    def weighted_sums(self, factors: Tensor, rows: Tensor) -> Tensor:
        """(size, width): for each feature the sum of its samples' rows, times their factors (n, k)."""
        from whence.kernels.sparse_code import numba_cpu

        starts, samples, places = self.lists
        return numba_cpu.weighted_sums(starts, samples, factors.flatten()[places], rows)


def _by_sample(factors: Tensor, indices: Tensor, rows: Tensor) -> Tensor:
    """(n, width): for each sample the sum of its features' rows."""
    from whence.kernels.sparse_code import numba_cpu

    count, k = indices.shape
    starts = torch.arange(0, count * k + 1, k)
    return numba_cpu.weighted_sums(starts, indices.flatten(), factors.flatten(), rows)


def _refuse_second_order() -> None:
    if torch.is_grad_enabled():
        raise UserError("sparse codes have gradients, but no gradients of gradients")


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, indices: Tensor, dense: Tensor | None, by_feature: ByFeature
    ) -> Tensor:
        from whence.kernels.sparse_code import numba_cpu

        ctx.save_for_backward(x, weight, indices)
        ctx.by_feature = by_feature
        if dense is not None:
            return dense.gather(1, indices)
        return numba_cpu.dot_products(x, weight, indices) + bias[indices]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_order()
        x, weight, indices = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad[:3]
        (slopes,) = gradients
        dx = _by_sample(slopes, indices, weight) if for_x else None
        dweight = ctx.by_feature.weighted_sums(slopes, x) if for_weight else None
        dbias = None
        if for_bias:  # added up one after the other, in double precision
            dbias = torch.bincount(indices.flatten(), slopes.flatten().double(), len(weight)).to(slopes.dtype)
        return dx, dweight, dbias, None, None, None


class Decode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, indices: Tensor, weight: Tensor, by_feature: ByFeature) -> Tensor:
        ctx.save_for_backward(values, indices, weight)
        ctx.by_feature = by_feature
        return _by_sample(values, indices, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from whence.kernels.sparse_code import numba_cpu

        _refuse_second_order()
        values, indices, weight = ctx.saved_tensors
        for_values, _, for_weight, _ = ctx.needs_input_grad
        (slopes,) = gradients
        dvalues = numba_cpu.dot_products(slopes, weight, indices) if for_values else None
        dweight = ctx.by_feature.weighted_sums(values, slopes) if for_weight else None
        return dvalues, None, dweight, None
