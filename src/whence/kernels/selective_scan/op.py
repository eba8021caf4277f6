"""The CPU kernel as an operator of torch: autograd, torch.compile and torch.export know it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError
from whence.kernels.autograd import direct, either, precision


def _scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    state: Tensor | None,
    reverse: bool,
    differentiable: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, the last state, and what the gradient will need. States are packed (numba_cpu.pack)."""
    from whence.kernels.selective_scan import numba_cpu

    kind = precision(u, delta, A, B, C, D, state)
    y, last, marks = numba_cpu.scan(u, delta, A, B, C, D, state, reverse, differentiable, kind)
    return y.to(u.dtype), last, marks


operator = torch.library.custom_op("whence::selective_scan", _scan, mutates_args=(), device_types="cpu")


@operator.register_fake
def _(u, delta, A, B, C, D, state, reverse, differentiable):
    from whence.kernels.selective_scan import numba_cpu

    kind = precision(u, delta, A, B, C, D, state)
    last = u.new_empty(numba_cpu.state_shape(u, A), dtype=kind)
    shape = numba_cpu.marks_shape(u, A) if differentiable else (0, 0)
    return torch.empty_like(u, memory_format=torch.contiguous_format), last, u.new_empty(shape, dtype=kind)


def _backward(
    dy: Tensor,
    dlast: Tensor | None,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    marks: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from whence.kernels.selective_scan import numba_cpu

    def like(gradient: Tensor, tensor: Tensor) -> Tensor:
        return gradient.to(tensor.dtype).contiguous()

    by = numba_cpu.gradients(dy, dlast, u, delta, A, B, C, D, marks, reverse)
    dA, dB, dC = like(by.A, A), like(by.B, B), like(by.C, C)
    return like(by.u, u), like(by.delta, delta), dA, dB, dC, like(by.D, A if D is None else D), like(by.state, marks)


backward_operator = torch.library.custom_op(
    "whence::selective_scan_backward", _backward, mutates_args=(), device_types="cpu"
)


@backward_operator.register_fake
def _(dy, dlast, u, delta, A, B, C, D, marks, reverse):
    from whence.kernels.selective_scan import numba_cpu

    def like(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    dD = u.new_empty((u.shape[2],), dtype=A.dtype if D is None else D.dtype)
    dstate = marks.new_empty(numba_cpu.state_shape(u, A))
    return like(u), like(delta), like(A), like(B), like(C), dD, dstate


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, state, reverse, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[2])
    ctx.state_dtype = None if state is None else state.dtype
    ctx.reverse = reverse


def _differentiate(
    backward: Any, ctx: Any, dy: Tensor | None, dlast: Tensor | None, _: None
) -> tuple[Tensor | None, ...]:
    u, delta, A, B, C, D, marks = ctx.saved_tensors
    if dy is None:
        dy = torch.zeros_like(u)
    if not marks.numel() and u.numel():
        raise UserError(
            "selective_scan ran, or was traced, with gradients switched off: there is nothing to go back through"
        )
    *gradients, dD, dstate = backward(dy, dlast, u, delta, A, B, C, D, marks, ctx.reverse)
    dstate = None if ctx.state_dtype is None else dstate.to(ctx.state_dtype)
    return *gradients, None if D is None else dD, dstate, None, None


operator.register_autograd(partial(_differentiate, backward_operator), setup_context=_remember)
scan = direct(operator, _scan, _remember, partial(_differentiate, either(backward_operator, _backward)))
