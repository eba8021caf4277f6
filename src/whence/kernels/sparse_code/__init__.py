"""The sparse code of a top-k autoencoder: which k features, their values, and what they add up to.

naive.py is the definition, and the fallback for other devices and precisions; numba_cpu.py holds the CPU kernels,
which get their gradients here: the same products again, so that nothing of size (n, size) is ever made. Weights
are (size, width), one row for each feature, in the encoder and in the decoder. A step that shares one `ByFeature`
between `gathered` and `decode` sorts its indices once.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import _get_current_dispatch_mode

from whence.errors import UserError
from whence.kernels.autograd import apply
from whence.kernels.memory import room
from whence.kernels.sparse_code import naive

__all__ = ["ByFeature", "decode", "gathered", "scores", "top_k"]


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


def scores(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·weightᵀ + bias, (n, size), without gradients, to choose from and to read values from.

    On a CPU in memory that is used again: clearing fresh pages would take a fifth of the product's own time.
    """
    with torch.no_grad():
        if not _plain(x, weight, bias):
            return torch.addmm(bias, x, weight.T)
        return torch.addmm(bias, x, weight.T, out=room(len(x), len(weight), dtype=x.dtype))


def top_k(scores: Tensor, k: int) -> Tensor:
    """Indices (n, k), int64, of the k largest of each row of scores (n, size), in any order, without gradients.

    Among equal scores any may be taken, the same ones every time. What is not a number counts as infinite.
    """
    if scores.ndim != 2 or not 1 <= k <= scores.shape[1]:
        raise ValueError(f"scores must be (n, size) and k from 1 to size, got {tuple(scores.shape)} and k={k}")
    if not _plain(scores):
        return naive.top_k(scores, k)
    from whence.kernels.sparse_code import numba_cpu  # importing Numba takes half a second

    return numba_cpu.top_k(scores, k)


def gathered(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    indices: Tensor,
    *,
    dense: Tensor | None = None,
    by_feature: ByFeature | None = None,
) -> Tensor:
    """x[i]·weight[indices[i, j]] + bias[indices[i, j]], shaped (n, k): the scores of the chosen features alone.

    x: (n, width). weight: (size, width). bias: (size,). indices: (n, k). dense: (n, size), all scores, where they are
    known already; the values are then read from there. Gradients of x, weight and bias; not of gradients.
    """
    _check({"x": (x, (len(indices), weight.shape[-1])), "bias": (bias, (len(weight),))}, indices, weight)
    if dense is not None:
        _check({"dense": (dense, (len(indices), len(weight)))}, indices, weight)
    if not _plain(x, weight, bias, dense):
        return naive.gathered(x, weight, bias, indices)
    lists = _lists(indices, len(weight), by_feature)
    return apply(Gathered, x, weight, bias, indices, dense, lists)


def decode(values: Tensor, indices: Tensor, weight: Tensor, *, by_feature: ByFeature | None = None) -> Tensor:
    """Σⱼ values[i, j]·weight[indices[i, j]], shaped (n, width). Gradients of values and weight; not of gradients.

    values, indices: (n, k). weight: (size, width).
    """
    _check({"values": (values, tuple(indices.shape))}, indices, weight)
    if not _plain(values, weight):
        return naive.decode(values, indices, weight)
    lists = _lists(indices, len(weight), by_feature)
    return apply(Decode, values, indices, weight, lists)


def _plain(*tensors: Tensor | None) -> bool:
    """Whether the kernels can have them: single precision, in this machine's memory, not traced."""
    if torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None:
        return False
    given = [tensor for tensor in tensors if tensor is not None]
    kinds = all(type(tensor) in (Tensor, Parameter) for tensor in given)
    return kinds and all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in given)


def _check(tensors: dict[str, tuple[Tensor, tuple[int, ...]]], indices: Tensor, weight: Tensor) -> None:
    if indices.ndim != 2 or indices.dtype != torch.int64 or weight.ndim != 2:
        raise ValueError(
            "indices must be int64 (n, k) and weight (size, width), "
            f"got {indices.dtype} {tuple(indices.shape)} and {tuple(weight.shape)}"
        )
    for name, (tensor, shape) in tensors.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; "
                f"indices {tuple(indices.shape)} and weight {tuple(weight.shape)} ask for {shape}"
            )


def _lists(indices: Tensor, size: int, given: ByFeature | None) -> ByFeature:
    """The kernels go where indices send them: none may point outside."""
    if indices.numel():
        lowest, highest = (int(end) for end in indices.aminmax())
        if lowest < 0 or highest >= size:
            raise ValueError(f"indices go from {lowest} to {highest}; weight has {size} rows")
    if given is not None and (given.indices is not indices or given.size != size):
        raise ValueError("by_feature was made from other indices, or for another number of features")
    return given or ByFeature(indices, size)
