"""The short convolution in front of Mamba's scan: depthwise, causal, with its SiLU.

naive.py is the definition, and the fallback for other devices; numba_cpu.py the CPU kernel, op.py its operator.
"""

from __future__ import annotations

from torch import Tensor

from whence.kernels.causal_conv import naive, op


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, reverse: bool = False) -> Tensor:
    """silu(bias + Σₖ weight[:, k] · x[t − taps + 1 + k]), zeros before the first step; shaped and typed like x.

    x: (batch, length, channels). weight: (channels, taps). bias: (channels,). reverse: from the last step to the first,
    so that a step sees those after it. Gradients of all tensors; not of gradients.
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
        return op.convolve(x, weight, bias, reverse)
    return naive.causal_conv(x, weight, bias, reverse=reverse)
