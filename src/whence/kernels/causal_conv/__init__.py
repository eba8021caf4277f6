"""The short convolution in front of Mamba's scan: depthwise, causal, with its SiLU.

naive.py is the definition, and the fallback for other devices; numba_cpu.py is the CPU kernel. Here it becomes an
operator of torch: autograd, torch.compile and torch.export know it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from whence.kernels.autograd import direct, either, precision
from whence.kernels.causal_conv import naive


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
_convolve_direct = direct(operator, _convolve, _remember, partial(_differentiate, either(backward_operator, _backward)))


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, reverse: bool = False) -> Tensor:
    """Depthwise causal convolution with SiLU, the one in front of Mamba's scan.

    Computes silu(bias + Σₖ weight[:, k] · x[t − taps + 1 + k]), with zeros before the first step. All tensors have
    gradients, which cannot be differentiated again.

    Args:
        x: (batch, length, channels).
        weight: (channels, taps).
        bias: (channels,).
        reverse: go from the last step to the first, so that a step depends on later ones.

    Returns:
        A tensor with the shape and the type of x.

    Raises:
        ValueError: if shapes, types or devices do not fit together.

    Example:
        >>> x, weight = torch.randn(1, 6, 8), torch.randn(8, 4)
        >>> whence.kernels.causal_conv(x, weight).shape
        torch.Size([1, 6, 8])
    """
    if x.ndim != 3 or weight.ndim != 2 or weight.shape[0] != x.shape[2] or not weight.shape[1] or not x.shape[1]:
        raise ValueError(
            "x must be (batch, length, channels) and weight (channels, taps), none of them empty; "
            f"got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (x.shape[2],):
        raise ValueError(f"bias has shape {tuple(bias.shape)}; x {tuple(x.shape)} asks for ({x.shape[2]},)")
    for name, tensor in {"x": x, "weight": weight, "bias": bias}.items():
        if tensor is not None and not (tensor.is_floating_point() and tensor.device == x.device):
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}; it must be floating point on {x.device}")
    if x.device.type in ("cpu", "meta"):
        return _convolve_direct(x, weight, bias, reverse)
    return naive.causal_conv(x, weight, bias, reverse=reverse)
