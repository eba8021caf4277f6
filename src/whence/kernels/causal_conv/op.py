"""The CPU kernel as an operator of torch: autograd, torch.compile and torch.export know it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whence.kernels.precision import precision


@torch.library.custom_op("whence::causal_conv", mutates_args=(), device_types="cpu")
def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool) -> Tensor:
    from whence.kernels.causal_conv import numba_cpu

    return numba_cpu.convolve(x, weight, bias, reverse, precision(x, weight, bias)).to(x.dtype)


@convolve.register_fake
def _(x, weight, bias, reverse):  # type: ignore[no-untyped-def]
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("whence::causal_conv_backward", mutates_args=(), device_types="cpu")
def convolve_backward(
    dy: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from whence.kernels.causal_conv import numba_cpu

    dx, dweight, dbias = numba_cpu.gradients(dy, x, weight, bias, reverse, precision(x, weight, bias))
    return dx.to(x.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype if bias is None else bias.dtype)


@convolve_backward.register_fake
def _(dy, x, weight, bias, reverse):  # type: ignore[no-untyped-def]
    def like(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    return like(x), like(weight), weight.new_empty((x.shape[2],)) if bias is None else like(bias)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.reverse = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias = ctx.saved_tensors
    dx, dweight, dbias = convolve_backward(dy, x, weight, bias, ctx.reverse)
    return dx, dweight, None if bias is None else dbias, None


convolve.register_autograd(_differentiate, setup_context=_remember)
