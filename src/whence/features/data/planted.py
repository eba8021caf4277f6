"""States made of features that are known: some are heard in one part of the context only."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.features.data.base import Data, States
from whence.random import generator

PART, PARTS, HELD = 8192, 8, 5
"""States in a part; parts of what is fitted, and of what is held out."""


class Planted(Data):
    """Sums of a few of many directions. Half of them are free: active anywhere. The others are bound, each to one of
    `windows` parts of the context. rare: bound features are as frequent as free ones where they may be active, so rarer
    overall; equal: as frequent as free ones overall, so more frequent where they may be active."""

    held_out_name = ""

    def __init__(
        self,
        *,
        regime: Annotated[Literal["rare", "equal"], Field(description="how frequent bound features are")] = "rare",
        width: Annotated[int, Field(ge=2, description="numbers per state")] = 64,
        features: Annotated[int, Field(ge=2, multiple_of=2, description="true features, half of them bound")] = 192,
        context: Annotated[int, Field(ge=2, description="positions")] = 32,
        windows: Annotated[int, Field(ge=1, description="parts of the context that features are bound to")] = 4,
        rate: Annotated[float, Field(gt=0, lt=1, description="how often a free feature is active")] = 0.04,
        noise: Annotated[float, Field(ge=0, description="deviation of what is added to every number")] = 0.02,
        world: Annotated[int, Field(ge=0, description="which directions: another number, other ones")] = 0,
    ) -> None:
        if windows > context:
            raise ValueError("windows: no more than positions")
        if regime == "equal" and rate * windows >= 1:
            raise ValueError("rate: bound features cannot be as frequent as that in their window")
        self.width, self.context, self.windows = width, context, windows
        self.features, self.rate, self.noise, self.world = features, rate, noise, world
        self.ends = (0, context - 1)
        self.inside = rate * windows if regime == "equal" else rate

    @functools.cached_property
    def directions(self) -> Tensor:
        """(features, width): the free first, then the bound"""
        drawn = torch.randn(self.features, self.width, generator=generator("planted", self.world))
        return nn.functional.normalize(drawn, dim=1)

    @functools.cached_property
    def rates(self) -> Tensor:
        """(context, features)"""
        half = self.features // 2
        window = torch.arange(self.context) * self.windows // self.context
        bound = (window[:, None] == torch.arange(half) % self.windows) * self.inside
        return torch.cat([torch.full((self.context, half), self.rate), bound], 1)

    @property
    def usual_l0(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True features that are active, on average."""
        return max(1, round(float(self.rates.sum(1).mean())))

    @property
    def usual_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A third more than there are true features, in whole groups for every position."""
        return -(-4 * self.features // (3 * self.context)) * self.context

    def draw(self, generator: torch.Generator, count: int) -> States:
        positions = torch.randint(self.context, (count,), generator=generator)
        active = torch.rand(count, self.features, generator=generator) < self.rates[positions]
        strength = 0.5 + torch.rand(count, self.features, generator=generator)
        noise = self.noise * torch.randn(count, self.width, generator=generator)
        return (active * strength) @ self.directions + noise, positions

    def everything(self) -> Iterator[States]:
        return (self.draw(generator("planted", self.world, "everything", part), PART) for part in range(PARTS))

    def held_out(self, stream: int = 0) -> Iterator[States]:
        return (self.draw(generator("planted", self.world, "held out", stream, part), PART) for part in range(HELD))

    def truth(self) -> dict[str, Tensor]:
        free, bound = self.directions.chunk(2)
        return {"free": free, "bound": bound}
