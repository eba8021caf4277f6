"""How far position counts as training goes on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from whence.registry import Registry, Variant


class Schedule(Variant):
    """progress: the share of training that is done, 0 to 1."""

    def strength(self, progress: float) -> float:
        """How far masks and whatever else depends on position count, 0 to 1."""
        return 1.0

    def penalty(self, progress: float) -> float:
        """What the price of being active is multiplied with."""
        return 1.0


SCHEDULES: Registry[Schedule] = Registry(__name__, Schedule)


class Constant(Schedule):
    """Position counts fully from the first step on."""


class ProgressiveSchedule(Schedule):
    """Position counts more and more, evenly, until a share of training is done."""

    name = "progressive"

    def __init__(
        self,
        *,
        full: Annotated[float, Field(gt=0, le=1, description="share of training after which position counts fully")] = (
            0.5
        ),
    ) -> None:
        self.full = full

    def strength(self, progress: float) -> float:
        return min(1.0, progress / self.full)


class Curriculum(Schedule):
    """The position-free part alone first; then what depends on position comes in, and the sparsity penalty with it."""

    def __init__(
        self,
        *,
        begin: Annotated[float, Field(ge=0, lt=1, description="share of training without position")] = 0.3,
        full: Annotated[float, Field(gt=0, le=1, description="share of training after which position counts fully")] = (
            0.7
        ),
        penalty: Annotated[
            float, Field(ge=0, le=1e6, description="of being active at first, as a share of the last")
        ] = 0.5,
    ) -> None:
        if full <= begin:
            raise ValueError("full: position must begin before it counts fully")
        self.begin, self.full, self.first_penalty = begin, full, penalty

    def strength(self, progress: float) -> float:
        return min(1.0, max(0.0, (progress - self.begin) / (self.full - self.begin)))

    def penalty(self, progress: float) -> float:
        return self.first_penalty + (1 - self.first_penalty) * self.strength(progress)
