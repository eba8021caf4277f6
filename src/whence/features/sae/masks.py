"""Masks: tables over positions and features that feature activations are multiplied with."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.sae.dictionary import Shape
from whence.registry import Registry, Variant


class Mask(Variant, nn.Module):
    """A multiplier of feature activations. With the mask off, activations show what features have learned."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def table(self, progress: float) -> Tensor | None:
        """Mask values (context_size, d_sae) from 0 to 1; None: no mask. progress: the share of training completed."""
        raise NotImplementedError


def spread_centres(context_size: int, d_sae: int) -> Tensor:
    """(d_sae,): centers of position-specific features, evenly over the context; neighbouring features are far apart."""
    return (torch.arange(d_sae) * 0.6180339887498949 % 1) * context_size - 0.5


def windows(context_size: int, centres: Tensor, width: float) -> Tensor:
    """(context_size, features): Gaussians of height 1 around the centers. width: share of the context."""
    away = torch.arange(context_size)[:, None] - centres
    return torch.exp(-(away**2) / (2 * (width * context_size) ** 2))


def membership(shape: Shape, ranges: int) -> Tensor:
    """(context_size, d_sae): 1 where the slice of a feature and the range of a position have the same index."""
    of_position = torch.arange(shape.context_size) * ranges // shape.context_size
    of_feature = torch.arange(shape.d_sae) * ranges // shape.d_sae
    return (of_position[:, None] == of_feature).float()


MASKS: Registry[Mask] = Registry(__name__, Mask)


class NoMask(Mask):
    """No mask: every feature can be active at every position."""

    name = "none"

    def table(self, progress: float) -> Tensor | None:
        return None


class StaticSlice(Mask):
    """Divide context and features into ranges: each slice of features is active in its own range of positions only."""

    slices: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        ranges: Annotated[
            int, Field(ge=1, le=2**12, description="number of ranges of positions, and slices of features")
        ] = 4,
    ) -> None:
        super().__init__(shape)
        self.register_buffer("slices", membership(shape, ranges), persistent=False)

    def table(self, progress: float) -> Tensor:
        return self.slices


class Hard(Mask):
    """A fixed binary mask: each feature is active at a share of the positions, random or contiguous."""

    open: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        share: Annotated[float, Field(gt=0, le=1, description="share of positions where a feature is active")] = 0.5,
        together: Annotated[bool, Field(description="contiguous positions; false: random positions")] = False,
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
    """A learned mask: the sigmoid of a logit for every position and feature."""

    def __init__(
        self,
        shape: Shape,
        *,
        spread: Annotated[float, Field(ge=0, le=1e6, description="initial logits are uniform in ± this")] = 1.0,
    ) -> None:
        super().__init__(shape)
        self.spread = spread
        self.logits = nn.Parameter(torch.empty(shape.context_size, shape.d_sae))

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.logits, -self.spread, self.spread)

    def table(self, progress: float) -> Tensor:
        return self.logits.sigmoid()


Width = Annotated[float, Field(ge=1e-3, le=1e6, description="width of the Gaussian, as a share of the context")]


class Gaussian(Mask):
    """A fixed Gaussian mask around the position of each feature."""

    bells: Tensor

    def __init__(self, shape: Shape, *, sigma: Width = 0.125) -> None:
        super().__init__(shape)
        bells = windows(shape.context_size, spread_centres(shape.context_size, shape.d_sae), sigma)
        self.register_buffer("bells", bells, persistent=False)

    def table(self, progress: float) -> Tensor:
        return self.bells


STEEP = 4.0
"""The logit of the coefficient rises from minus to plus this value, in addition to its learned offset."""


class ProgressiveMask(Gaussian):
    """A Gaussian mask that is introduced by a coefficient, which rises during training and has a learned offset."""

    name = "progressive"

    def __init__(self, shape: Shape, *, sigma: Width = 0.125) -> None:
        super().__init__(shape, sigma=sigma)
        self.logit = nn.Parameter(torch.zeros(()))

    def table(self, progress: float) -> Tensor:
        influence = (self.logit + STEEP * (2 * progress - 1)).sigmoid()
        return 1 - influence * (1 - self.bells)
