"""The selective scan of Mamba: h ← exp(Δ·A)·h + Δ·B·u, y = C·h + D·u, one state of N numbers per channel.

naive.py is the definition, numba_cpu.py the CPU kernel (op.py makes it an operator of torch), other_devices.py
the fallback and mamba-ssm's CUDA kernel. `selective_scan` picks.
"""

from __future__ import annotations

from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from whence.kernels.autograd import precision
from whence.kernels.selective_scan import op, other_devices


@overload
def selective_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, *, z: Tensor | None = None,
    valid: Tensor | None = None, initial_state: Tensor | None = None, return_state: Literal[False] = False,
    reverse: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def selective_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, *, z: Tensor | None = None,
    valid: Tensor | None = None, initial_state: Tensor | None = None, return_state: Literal[True],
    reverse: bool = False,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    *,
    z: Tensor | None = None,
    valid: Tensor | None = None,
    initial_state: Tensor | None = None,
    return_state: bool = False,
    reverse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The selective scan of Mamba: h ← exp(Δ·A)·h + Δ·B·u, y = C·h + D·u.

    The state is computed in single precision (double if an input is double). All tensors have gradients, which cannot
    be differentiated again. On a CPU the scan uses torch's number of threads, with the same bits for any number.

    Args:
        u: (batch, length, channels).
        delta: (batch, length, channels), as used, that is after its softplus.
        A: (channels, N).
        B: (batch, length, N).
        C: (batch, length, N).
        D: (channels,), adds D·u.
        z: (batch, length, channels), multiplies the result by silu(z).
        valid: bool (batch, length). Where it is False the state does not advance, exactly, and y reads it unchanged.
            Inputs at such a step must be finite all the same.
        initial_state: (batch, channels, N); None: zeros.
        return_state: also return the state after the last step.
        reverse: go from the last step to the first. The initial state then enters at the right end, and the state that
            is returned is that of step 0.

    Returns:
        y with the shape and the type of u; with `return_state` also the state, (batch, channels, N).

    Raises:
        ValueError: if shapes, types or devices do not fit together.

    Example:
        >>> u, delta = torch.randn(1, 6, 8), torch.rand(1, 6, 8)
        >>> A, B, C = -torch.rand(8, 4), torch.randn(1, 6, 4), torch.randn(1, 6, 4)
        >>> y, state = whence.kernels.selective_scan(u, delta, A, B, C, return_state=True)
        >>> y.shape, state.shape
        (torch.Size([1, 6, 8]), torch.Size([1, 8, 4]))
    """
    _check(u, delta, A, B, C, D, z, valid, initial_state)
    if valid is not None:
        delta = delta.masked_fill(~valid[..., None], 0)  # exp(0·A)·h + 0 is h, bit for bit
    tensors = (u, delta, A, B, C, D, initial_state)
    if u.device.type in ("cpu", "meta"):
        from whence.kernels.selective_scan import numba_cpu  # importing Numba takes half a second

        differentiable = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
        packed = None if initial_state is None else numba_cpu.pack(initial_state)
        y, state, _ = op.scan(*tensors[:-1], packed, reverse, differentiable)
        state = numba_cpu.unpack(state, u.shape[2]) if return_state else state
    elif u.is_cuda and initial_state is None and u.dtype != torch.float64 and other_devices.mamba_ssm_installed():
        y, state = other_devices.mamba_ssm_scan(u, delta, A, B, C, D, reverse)
    else:
        y, state = other_devices.torch_scan(*tensors, reverse, precision(*tensors))
    if z is not None:
        y = (y * F.silu(z)).to(u.dtype)
    return (y, state) if return_state else y


def _check(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    valid: Tensor | None,
    state: Tensor | None,
) -> None:
    if u.ndim != 3 or A.ndim != 2:
        raise ValueError(f"u must be (batch, length, channels) and A (channels, N), got {_(u)} and {_(A)}")
    (batch, length, channels), N = u.shape, A.shape[1]
    if length < 1 or N < 1:
        raise ValueError(f"the scan needs at least one step and one state, got length {length} and N={N}")
    wanted = {
        "delta": (delta, (batch, length, channels)),
        "A": (A, (channels, N)),
        "B": (B, (batch, length, N)),
        "C": (C, (batch, length, N)),
        "D": (D, (channels,)),
        "z": (z, (batch, length, channels)),
        "valid": (valid, (batch, length)),
        "initial_state": (state, (batch, channels, N)),
    }
    for name, (tensor, shape) in wanted.items():
        if tensor is None:
            continue
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {_(tensor)}; u {_(u)} and A {_(A)} ask for {shape}")
        if tensor.device != u.device:
            raise ValueError(f"{name} is on {tensor.device}, u on {u.device}")
        if (tensor.dtype == torch.bool) != (name == "valid") or tensor.is_complex():
            raise ValueError(f"{name} is {tensor.dtype}; it must be {'bool' if name == 'valid' else 'real'}")
    if not u.is_floating_point():
        raise ValueError(f"u is {u.dtype}; it must be floating point")


def _(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
