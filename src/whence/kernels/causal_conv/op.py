"""The CPU kernel as an operator of torch: autograd, torch.compile and torch.export know it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from whence.kernels.direct import direct, either
from whence.kernels.precision import precision


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool) -> Tensor:
    from whence.kernels.causal_conv import numba_cpu

    return numba_cpu.convolve(x, weight, bias, reverse, precision(x, weight, bias)).to(x.dtype)


operator = torch.library.custom_op("whence::causal_conv", _convolve, mutates_args=(), device_types="cpu")


@operator.register_fake
def _(x, weight, bias, reverse):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _backward(
    dy: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from whence.kernels.causal_conv import numba_cpu

    dx, dweight, dbias = numba_cpu.gradients(dy, x, weight, bias, reverse, precision(x, weight, bias))
    return dx.to(x.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype if bias is None else bias.dtype)


backward_operator = torch.library.custom_op(
    "whence::causal_conv_backward", _backward, mutates_args=(), device_types="cpu"
)


@backward_operator.register_fake
def _(dy, x, weight, bias, reverse):
    def like(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    return like(x), like(weight), weight.new_empty((x.shape[2],)) if bias is None else like(bias)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.reverse = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(backward: Any, ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias = ctx.saved_tensors
    dx, dweight, dbias = backward(dy, x, weight, bias, ctx.reverse)
    return dx, dweight, None if bias is None else dbias, None


operator.register_autograd(partial(_differentiate, backward_operator), setup_context=_remember)
convolve = direct(operator, _convolve, _remember, partial(_differentiate, either(backward_operator, _backward)))
