"""Masks: tables of positions by features that feature activations are multiplied with."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.registry import Registry, Variant


class Mask(Variant, nn.Module):
    """With the mask off, it is not there at all: what features do without it is what they have learned."""

    def __init__(self, context_size: int, d_sae: int) -> None:
        super().__init__()
        self.context_size, self.d_sae = context_size, d_sae

    def table(self, progress: float) -> Tensor | None:
        """(context_size, d_sae), from 0 to 1; None: nothing is masked. progress: the share of training that is done."""
        raise NotImplementedError


def spread_centres(context_size: int, d_sae: int) -> Tensor:
    """(d_sae,): centres of position-specific features, evenly over the context, neighbours in different places."""
    return (torch.arange(d_sae) * 0.6180339887498949 % 1) * context_size - 0.5


def windows(context_size: int, centres: Tensor, sigma: float) -> Tensor:
    """(context_size, features): a bell of height 1 around each feature's centre."""
    away = torch.arange(context_size, device=centres.device)[:, None] - centres
    return torch.exp(-(away**2) / (2 * sigma**2))


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
        context_size: int,
        d_sae: int,
        *,
        ranges: Annotated[int, Field(ge=1, description="slices of the context and of the dictionary")] = 4,
    ) -> None:
        super().__init__(context_size, d_sae)
        self.register_buffer("slices", membership(context_size, d_sae, ranges), persistent=False)

    def table(self, progress: float) -> Tensor:
        return self.slices


def membership(context_size: int, d_sae: int, ranges: int) -> Tensor:
    """(context_size, d_sae): 1 where a feature's slice and a position's range have the same number."""
    of_position = torch.arange(context_size) * ranges // context_size
    of_feature = torch.arange(d_sae) * ranges // d_sae
    return (of_position[:, None] == of_feature).float()


class Hard(Mask):
    """Each feature may speak at a share of the positions: random ones, or a stretch of them."""

    open: Tensor

    def __init__(
        self,
        context_size: int,
        d_sae: int,
        *,
        share: Annotated[float, Field(gt=0, le=1, description="of positions that a feature may speak at")] = 0.5,
        together: Annotated[bool, Field(description="in one stretch, which every feature has elsewhere")] = False,
    ) -> None:
        super().__init__(context_size, d_sae)
        self.share, self.together = share, together
        self.register_buffer("open", torch.empty(context_size, d_sae))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.together:
            away = (torch.arange(self.context_size)[:, None] - spread_centres(self.context_size, self.d_sae)).abs()
            around = torch.minimum(away, self.context_size - away)  # the two ends of the context count as neighbours
            self.open.copy_((around < self.share * self.context_size / 2).float())
        else:
            self.open.copy_((torch.rand(self.context_size, self.d_sae) < self.share).float())

    def table(self, progress: float) -> Tensor:
        return self.open


class SoftSigmoid(Mask):
    """A logit for every position and feature, through a sigmoid; trained with the rest."""

    def __init__(
        self,
        context_size: int,
        d_sae: int,
        *,
        spread: Annotated[float, Field(ge=0, description="logits start uniformly within ± this")] = 1.0,
    ) -> None:
        super().__init__(context_size, d_sae)
        self.spread = spread
        self.logits = nn.Parameter(torch.empty(context_size, d_sae))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.logits, -self.spread, self.spread)

    def table(self, progress: float) -> Tensor:
        return self.logits.sigmoid()


class Gaussian(Mask):
    """Each feature has its place in the context, and is damped away from it."""

    bells: Tensor

    def __init__(
        self,
        context_size: int,
        d_sae: int,
        *,
        sigma: Annotated[float, Field(ge=1e-3, description="width of a bell, as a share of the context")] = 0.125,
    ) -> None:
        super().__init__(context_size, d_sae)
        bells = windows(context_size, spread_centres(context_size, d_sae), sigma * context_size)
        self.register_buffer("bells", bells, persistent=False)

    def table(self, progress: float) -> Tensor:
        return self.bells


STEEP = 4.0
"""The coefficient's logit goes from minus to plus this much, besides what it learns."""


class ProgressiveMask(Gaussian):
    """Gaussian bells mixed with no mask at all, by a coefficient that rises with training and can be learned."""

    name = "progressive"

    def __init__(
        self,
        context_size: int,
        d_sae: int,
        *,
        sigma: Annotated[float, Field(ge=1e-3, description="width of a bell, as a share of the context")] = 0.125,
    ) -> None:
        super().__init__(context_size, d_sae, sigma=sigma)
        self.logit = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.logit)

    def table(self, progress: float) -> Tensor:
        influence = (self.logit + STEEP * (2 * progress - 1)).sigmoid()
        return 1 - influence * (1 - self.bells)
