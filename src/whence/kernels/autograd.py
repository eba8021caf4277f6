"""What the operators share: their precision, and calls of autograd functions.

`direct` is a way around the dispatcher of torch for plain tensors: it takes 0.3 ms per forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import _get_current_dispatch_mode


def precision(*tensors: Tensor | None) -> torch.dtype:
    """Double if any input is, single otherwise (also for half-precision inputs)."""
    double = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if double else torch.float32


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """`function.apply`, for functions with one output; torch does not declare its type."""
    output = function.apply(*arguments)
    assert isinstance(output, Tensor)
    return output


def direct(operator: Callable[..., Any], compute: Callable[..., Any], remember: Any, differentiate: Any) -> Any:
    """A function that computes on plain tensors by itself, and calls `operator` when torch traces or pretends."""

    class Direct(torch.autograd.Function):
        # not `setup_context`: with it torch inspects the signature of `forward` in every call, which takes 0.03 ms
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            output = compute(*given)
            remember(ctx, given, output)
            return output

        backward: Any = staticmethod(differentiate)

    def call(first: Tensor, *rest: Any) -> Any:
        given = (first, *rest)
        plain = all(type(value) in (Tensor, Parameter) for value in given if isinstance(value, Tensor))
        traced = torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None
        transformed = torch._C._are_functorch_transforms_active()
        usable = plain and not traced and not transformed and first.device.type == "cpu"
        return Direct.apply(*given) if usable else operator(*given)

    return call


def either(operator: Callable[..., Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    """For a backward: `compute`, unless gradients of gradients are asked for, which the operator refuses for all.

    (torch's once_differentiable refuses them only where the incoming gradient needs one, and drops them elsewhere.)
    """
    return lambda *given: operator(*given) if torch.is_grad_enabled() else compute(*given)
