"""How pre-activations become a few active features, and what being active costs."""

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
    """All features of every state, or k of them."""

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
    """Which features of a state count is known before anything is computed for the others."""

    selects = False
    """Some active features are dropped, those that are not chosen."""

    def initial_bias(self, d_sae: int) -> float:
        """Of all pre-activations, where training starts."""
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
    """(n, k): of every state the k most active, where no state has more than k active features."""
    most = int((activations > 0).sum(1).amax())
    return top_k(activations, max(1, most))


SPARSITY: Registry[Sparsity] = Registry(__name__, Sparsity)


class TopK(Sparsity):
    """Of every state, the k features that are most active."""

    name = "topk"
    selects = True

    def __init__(
        self, *, k: Annotated[int, Field(ge=1, le=2**20, description="active features per state")] = 16
    ) -> None:
        super().__init__()
        self.k = k

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor:
        return top_k(masked, min(self.k, masked.shape[1]))

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        return {"k": l0}


MEMORY = 0.9
"""How much of the threshold is kept from step to step."""


class BatchTopK(Sparsity):
    """Of all states of a batch together, k times as many features as there are states. Used, one threshold stands for
    that: then what a state is encoded as does not depend on its neighbours."""

    name = "batch_topk"
    threshold: Tensor
    selects = True

    def __init__(
        self, *, k: Annotated[int, Field(ge=1, le=2**20, description="active features per state, on average")] = 16
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
"""How fast the coefficient follows, per step and unit of log(L0 / wanted)."""
STEERED = 2.0
"""Where a coefficient starts that is steered."""
SPARSE = 8
"""Features are named where no state has more than one in so many of them active: then that is faster."""


class L1(Sparsity):
    """A penalty on the sum of activations, each times the length of its direction. The coefficient is given, or steered
    to a wanted number of active features."""

    log_coefficient: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        coefficient: Annotated[
            float, Field(gt=0, le=1e9, description="of the penalty; where it starts, if l0 is given")
        ] = 0.04,
        on: Annotated[
            Literal["masked", "raw"], Field(description="activations after the mask, or before it")
        ] = "masked",
        l0: Annotated[
            float, Field(ge=0, le=2**20, description="active features that the coefficient is steered to; 0: none")
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
"""How near to its threshold a pre-activation must be to move it."""


class JumpReLU(Sparsity):
    """Nothing below a feature's threshold, the pre-activation above it.

    Thresholds learn by how many features are active beside how many are wanted.
    """

    name = "jumprelu"

    def __init__(
        self,
        shape: Shape,
        *,
        l0: Annotated[float, Field(gt=0, le=2**20, description="active features that are wanted")] = 16,
        coefficient: Annotated[float, Field(gt=0, le=1e9, description="of the penalty on missing them")] = 1.0,
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
