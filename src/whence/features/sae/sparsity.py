"""Sparsity mechanisms: which features are active, and the penalty on activations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.dictionary import Shape
from whence.kernels.autograd import apply
from whence.kernels.sparse_code import ByFeature, decode, top_k
from whence.registry import Registry, Variant


@dataclass(frozen=True)
class Code:
    """Codes of activations: values of all features, or of k of them."""

    values: Tensor
    """(n, d_sae) or (n, k)"""
    raw: Tensor
    """The values before the mask."""
    named: ByFeature | None
    """Whose values they are, (n, k) indices; None: all features'"""

    @property
    def indices(self) -> Tensor | None:
        return None if self.named is None else self.named.indices

    def times(self, rows: Tensor, values: Tensor | None = None) -> Tensor:
        """The code, or other values in its place, times a matrix with a row for every feature (d_sae, m): (n, m)"""
        values = self.values if values is None else values
        if self.named is None:
            return values @ rows
        return decode(values, self.named.indices, rows, by_feature=self.named)

    def dense(self, d_sae: int) -> Tensor:
        """(n, d_sae)"""
        if self.indices is None:
            return self.values
        return self.values.new_zeros(len(self.values), d_sae).scatter(1, self.indices, self.values)


class Sparsity(Variant, nn.Module):
    """A sparsity mechanism. It chooses features first, so that gradients are computed for those only."""

    selects = False
    """Active features that are not chosen are set to 0"""

    def initial_bias(self, d_sae: int) -> float:
        """Initial bias of all pre-activations."""
        return 0.0

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor | None:
        """(n, k): all features that will be active or priced, and perhaps more, from (n, d_sae) pre-activations without
        gradient, before masks and after them. None: they are too many to be named."""
        return None

    def activate(self, pre: Tensor) -> Tensor:
        """Activations, not negative, from pre-activations: of all features, or of those chosen."""
        return pre.relu()

    def select(self, codes: Tensor) -> Tensor:
        """What is left of the codes of the features chosen, masks applied."""
        return codes

    def penalty(self, code: Code, decoder: Tensor) -> Tensor | float:
        """What being active costs. decoder: (d_sae, d_in), the features' directions."""
        return 0.0

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        """The options that give so many active features."""
        raise NotImplementedError


def threshold_for(l0: float, d_sae: int) -> float:
    """Above which about l0 of so many numbers of variance 1 lie."""
    return NormalDist().inv_cdf(1 - min(l0, d_sae / 2) / d_sae)


def active_ones(activations: Tensor) -> Tensor:
    """(n, k): the k most active features of every activation, with k the largest number of active features."""
    most = int((activations > 0).sum(1).amax())
    return top_k(activations, max(1, most))


SPARSITY: Registry[Sparsity] = Registry(__name__, Sparsity)


class TopK(Sparsity):
    """Keep the k most active features of each activation."""

    name = "topk"
    selects = True

    def __init__(
        self, *, k: Annotated[int, Field(ge=1, le=2**20, description="active features per activation")] = 16
    ) -> None:
        super().__init__()
        self.k = k

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor:
        return top_k(masked, min(self.k, masked.shape[1]))

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        return {"k": l0}


MEMORY = 0.9
"""Decay of the moving average of the threshold, per step."""


class BatchTopK(Sparsity):
    """Keep the most active features of a batch, k per activation on average; a fixed threshold after training.

    With the threshold, the code of an activation does not depend on the batch.
    """

    name = "batch_topk"
    threshold: Tensor
    selects = True

    def __init__(
        self, *, k: Annotated[int, Field(ge=1, le=2**20, description="mean active features per activation")] = 16
    ) -> None:
        super().__init__()
        self.k = k
        self.register_buffer("threshold", torch.tensor(-1.0))

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor:
        if self.training:
            active = min(self.k * len(masked), masked.numel())
            least = masked.flatten().kthvalue(masked.numel() - active + 1).values.clamp(min=0)
            self.threshold.copy_(least if self.threshold < 0 else MEMORY * self.threshold + (1 - MEMORY) * least)
            self.least = least
        else:
            self.least = self.threshold
        return active_ones(masked * (masked >= self.least))

    def select(self, codes: Tensor) -> Tensor:
        return torch.where(codes >= self.least, codes, 0.0)

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        return {"k": l0}


RATE = 0.02
"""Step size of the coefficient, per unit of log(L0 / target)."""
STEERED = 2.0
"""Initial value of a steered coefficient."""
SPARSE = 8
"""Sparse computation is used where no activation has more than one in this number of features active."""


class L1(Sparsity):
    """L1 penalty on activations times the norm of their directions. The coefficient is fixed or steered to an L0."""

    log_coefficient: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        coefficient: Annotated[
            float, Field(gt=0, le=1e9, description="coefficient of the penalty; its initial value if l0 is set")
        ] = 0.04,
        on: Annotated[
            Literal["masked", "raw"], Field(description="penalized activations: after the mask, or before it (raw)")
        ] = "masked",
        l0: Annotated[
            float,
            Field(ge=0, le=2**20, description="active features to steer the coefficient to; 0: fixed coefficient"),
        ] = 0,
    ) -> None:
        super().__init__()
        self.d_in, self.on, self.l0 = shape.d_in, on, l0
        self.register_buffer("log_coefficient", torch.tensor(math.log(coefficient)))

    def initial_bias(self, d_sae: int) -> float:
        """Where a number of active features is wanted, about so many are from the first step on: getting there by the
        penalty alone would take most of training."""
        if not self.l0:
            return 0.0
        return -threshold_for(self.l0, d_sae)

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor | None:
        if pre.device.type != "cpu":  # only there it is faster
            return None
        indices = active_ones(pre if self.on == "raw" else masked)
        return indices if indices.shape[1] * SPARSE <= pre.shape[1] else None

    def penalty(self, code: Code, decoder: Tensor) -> Tensor:
        lengths = decoder.norm(dim=1)
        priced = code.raw if self.on == "raw" else code.values
        summed = (priced * (lengths if code.indices is None else lengths[code.indices])).sum(1).mean()
        price = self.log_coefficient.exp() * summed / self.d_in
        if self.training and self.l0:
            with torch.no_grad():
                l0 = (code.values > 0).sum(1, dtype=torch.float32).mean()
                step = RATE * (l0.clamp(min=0.1) / self.l0).log()
                self.log_coefficient.add_(step).clamp_(-12, 6)
        return price

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        return {"l0": l0, "coefficient": STEERED}


BANDWIDTH = 0.5
"""Width of the window around the threshold in which pre-activations contribute to its gradient."""


class JumpReLU(Sparsity):
    """Learned threshold per feature: activations are 0 below it, and the pre-activation above it.

    Thresholds are trained by a penalty on the deviation of L0 from its target.
    """

    name = "jumprelu"

    def __init__(
        self,
        shape: Shape,
        *,
        l0: Annotated[float, Field(gt=0, le=2**20, description="target number of active features")] = 16,
        coefficient: Annotated[
            float, Field(gt=0, le=1e9, description="coefficient of the penalty on the deviation from l0")
        ] = 1.0,
    ) -> None:
        super().__init__()
        self.l0, self.coefficient = l0, coefficient
        start = threshold_for(l0, shape.d_sae)  # about as many features as wanted are active from the first step on
        self.log_threshold = nn.Parameter(torch.full((shape.d_sae,), math.log(max(start, 0.01))))

    def activate(self, pre: Tensor) -> Tensor:
        self.pre = pre
        return apply(_Jump, pre, self.log_threshold.exp())

    def penalty(self, code: Code, decoder: Tensor) -> Tensor:
        active = apply(_Step, self.pre, self.log_threshold.exp())
        unmasked = (code.values > 0) | (code.raw <= 0)  # what a mask sets to 0 is not active
        return self.coefficient * ((active * unmasked).sum(1).mean() / self.l0 - 1).square()

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
