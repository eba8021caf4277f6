"""Masks: tables of positions by features that feature activations are multiplied with."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.dictionary import Shape
from whence.registry import Registry, Variant


class Mask(Variant, nn.Module):
    """With the mask off, it is not there at all: what features do without it is what they have learned."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def table(self, progress: float) -> Tensor | None:
        """(context_size, d_sae), from 0 to 1; None: nothing is masked. progress: the share of training that is done."""
        raise NotImplementedError


def spread_centres(context_size: int, d_sae: int) -> Tensor:
    """(d_sae,): centres of position-specific features, evenly over the context, neighbours in different places."""
    return (torch.arange(d_sae) * 0.6180339887498949 % 1) * context_size - 0.5


def windows(context_size: int, centres: Tensor, width: float) -> Tensor:
    """(context_size, features): a bell of height 1 around each feature's centre. width: share of the context."""
    away = torch.arange(context_size)[:, None] - centres
    return torch.exp(-(away**2) / (2 * (width * context_size) ** 2))


def membership(shape: Shape, ranges: int) -> Tensor:
    """(context_size, d_sae): 1 where a feature's slice and a position's range have the same number."""
    of_position = torch.arange(shape.context_size) * ranges // shape.context_size
    of_feature = torch.arange(shape.d_sae) * ranges // shape.d_sae
    return (of_position[:, None] == of_feature).float()


MASKS: Registry[Mask] = Registry(__name__, Mask)


class NoMask(Mask):
    """Every feature may be active everywhere."""

    name = "none"

    def table(self, progress: float) -> Tensor | None:
        return None


class StaticSlice(Mask):
    """The context in ranges, the features in as many slices: each slice speaks in its own range only."""

    slices: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        ranges: Annotated[int, Field(ge=1, le=2**12, description="slices of the context and of the dictionary")] = 4,
    ) -> None:
        super().__init__(shape)
        self.register_buffer("slices", membership(shape, ranges), persistent=False)

    def table(self, progress: float) -> Tensor:
        return self.slices


class Hard(Mask):
    """Each feature may speak at a share of the positions: random ones, or a stretch of them."""

    open: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        share: Annotated[float, Field(gt=0, le=1, description="of positions that a feature may speak at")] = 0.5,
        together: Annotated[bool, Field(description="in one stretch, which every feature has elsewhere")] = False,
    ) -> None:
        super().__init__(shape)
        self.share, self.together = share, together
        self.register_buffer("open", torch.empty(shape.context_size, shape.d_sae))

    def reset_parameters(self) -> None:
        size, d_sae = self.shape.context_size, self.shape.d_sae
        if self.together:
            away = (torch.arange(size)[:, None] - spread_centres(size, d_sae)).abs()
            around = torch.minimum(away, size - away)  # the two ends of the context count as neighbours
            self.open.copy_(around < self.share * size / 2)
        else:
            self.open.copy_(torch.rand(size, d_sae) < self.share)

    def table(self, progress: float) -> Tensor:
        return self.open


class SoftSigmoid(Mask):
    """A logit for every position and feature, through a sigmoid; trained with the rest."""

    def __init__(
        self,
        shape: Shape,
        *,
        spread: Annotated[float, Field(ge=0, le=1e6, description="logits start uniformly within ± this")] = 1.0,
    ) -> None:
        super().__init__(shape)
        self.spread = spread
        self.logits = nn.Parameter(torch.empty(shape.context_size, shape.d_sae))

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.logits, -self.spread, self.spread)

    def table(self, progress: float) -> Tensor:
        return self.logits.sigmoid()


Width = Annotated[float, Field(ge=1e-3, le=1e6, description="width of a bell, as a share of the context")]


class Gaussian(Mask):
    """Each feature has its place in the context, and is damped away from it."""

    bells: Tensor

    def __init__(self, shape: Shape, *, sigma: Width = 0.125) -> None:
        super().__init__(shape)
        bells = windows(shape.context_size, spread_centres(shape.context_size, shape.d_sae), sigma)
        self.register_buffer("bells", bells, persistent=False)

    def table(self, progress: float) -> Tensor:
        return self.bells


STEEP = 4.0
"""The coefficient's logit goes from minus to plus this much, besides what it learns."""


class ProgressiveMask(Gaussian):
    """Gaussian bells mixed with no mask at all, by a coefficient that rises with training and can be learned."""

    name = "progressive"

    def __init__(self, shape: Shape, *, sigma: Width = 0.125) -> None:
        super().__init__(shape, sigma=sigma)
        self.logit = nn.Parameter(torch.zeros(()))

    def table(self, progress: float) -> Tensor:
        influence = (self.logit + STEEP * (2 * progress - 1)).sigmoid()
        return 1 - influence * (1 - self.bells)
