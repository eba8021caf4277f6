"""What sparsity is: how pre-activations become a few active features, and what being active costs."""

from __future__ import annotations

from statistics import NormalDist

from torch import Tensor, nn

from whence.features.sae.code import Code
from whence.kernels.sparse_code import top_k
from whence.registry import Variant


class Sparsity(Variant, nn.Module):
    """Which features of a state count is known before anything is computed for the others."""

    selects = False
    """Some active features are dropped, those that are not chosen."""

    def first_bias(self, size: int) -> float:
        """Of all pre-activations, where training starts."""
        return 0.0

    def chosen(self, pre: Tensor, masked: Tensor) -> Tensor | None:
        """(n, k): all features that will be active or priced, and perhaps more, from (n, size) pre-activations without
        gradient, before masks and after them. None: they are too many to be named."""
        return None

    def activate(self, pre: Tensor) -> Tensor:
        """Activations, not negative, from pre-activations: of all features, or of those chosen."""
        return pre.relu()

    def settle(self, codes: Tensor) -> Tensor:
        """What is left of the codes of the features chosen, masks applied."""
        return codes

    def penalty(self, code: Code, decoder: Tensor) -> Tensor | float:
        """What being active costs. decoder: (size, width), the features' directions."""
        return 0.0

    @classmethod
    def at_l0(cls, l0: int) -> dict[str, float]:
        """The options that give so many active features."""
        raise NotImplementedError


def threshold_for(l0: float, size: int) -> float:
    """Above which about l0 of so many numbers of variance 1 lie."""
    return NormalDist().inv_cdf(1 - min(l0, size / 2) / size)


def active_ones(activations: Tensor) -> Tensor:
    """(n, k): of every state the k most active, where no state has more than k active features."""
    most = int((activations > 0).sum(1).amax())
    return top_k(activations, max(1, most))
