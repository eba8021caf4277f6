"""A threshold for every feature, learned."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.code import Code
from whence.features.sae.sparsity.base import Sparsity, threshold_for
from whence.kernels.autograd import apply

BANDWIDTH = 0.5
"""How near to its threshold a pre-activation must be to move it."""


class JumpReLU(Sparsity):
    """Nothing below a feature's threshold, the pre-activation above it.

    Thresholds learn by how many features are active beside how many are wanted.
    """

    def __init__(
        self,
        size: int,
        *,
        l0: Annotated[float, Field(gt=0, description="active features that are wanted")] = 16,
        coefficient: Annotated[float, Field(gt=0, description="of the penalty on missing them")] = 1.0,
    ) -> None:
        super().__init__()
        self.l0, self.coefficient = l0, coefficient
        self.log_threshold = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """About as many features as wanted are active from the first step on."""
        start = threshold_for(self.l0, len(self.log_threshold))
        nn.init.constant_(self.log_threshold, math.log(max(start, 0.01)))

    def activate(self, pre: Tensor) -> Tensor:
        self.pre = pre
        return apply(_Jump, pre, self.log_threshold.exp())

    def penalty(self, code: Code, decoder: Tensor) -> Tensor:
        active: Any = _Step.apply(self.pre, self.log_threshold.exp())
        heard = (code.values > 0) | (code.raw <= 0)  # what a mask silences is not active
        return self.coefficient * ((active * heard).sum(1).mean() / self.l0 - 1).square()

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        return {"l0": l0}


def _near(pre: Tensor, threshold: Tensor) -> Tensor:
    """A box of area 1 around the threshold: the density of pre-activations there is estimated with it."""
    return ((pre - threshold).abs() < BANDWIDTH / 2).to(pre.dtype) / BANDWIDTH


class _Jump(torch.autograd.Function):
    """x · [x > t], with the gradient of t as if the jump were a short slope."""

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor) -> Tensor:
        ctx.save_for_backward(pre, threshold)
        return pre * (pre > threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        pre, threshold = ctx.saved_tensors
        moved = -(threshold * _near(pre, threshold) * gradients[0]).sum(0)
        return gradients[0] * (pre > threshold), moved


class _Step(torch.autograd.Function):
    """[x > t], the same way; x gets no gradient."""

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor) -> Tensor:
        ctx.save_for_backward(pre, threshold)
        return (pre > threshold).to(pre.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        pre, threshold = ctx.saved_tensors
        return None, -(_near(pre, threshold) * gradients[0]).sum(0)
