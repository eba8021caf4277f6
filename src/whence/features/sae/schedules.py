"""Strength of position-dependent parts during training."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from whence.registry import Registry, Variant


class Schedule(Variant):
    """progress: the share of training completed, 0 to 1."""

    def strength(self, progress: float) -> float:
        """Strength of masks and other position-dependent parts, 0 to 1."""
        return 1.0

    def penalty(self, progress: float) -> float:
        """Multiplier of the sparsity penalty."""
        return 1.0


SCHEDULES: Registry[Schedule] = Registry(__name__, Schedule)


class Constant(Schedule):
    """Full strength from the first step."""


class ProgressiveSchedule(Schedule):
    """Strength rises linearly to 1 during a share of training."""

    name = "progressive"

    def __init__(
        self,
        *,
        full: Annotated[float, Field(gt=0, le=1, description="share of training at which strength is 1")] = (0.5),
    ) -> None:
        self.full = full

    def strength(self, progress: float) -> float:
        return min(1.0, progress / self.full)


class Curriculum(Schedule):
    """Train without position-dependent parts first; then they and the full sparsity penalty are introduced linearly."""

    def __init__(
        self,
        *,
        begin: Annotated[float, Field(ge=0, lt=1, description="share of training at strength 0")] = 0.3,
        full: Annotated[float, Field(gt=0, le=1, description="share of training at which strength is 1")] = (0.7),
        penalty: Annotated[
            float, Field(ge=0, le=1e6, description="initial sparsity penalty, as a share of the final one")
        ] = 0.5,
    ) -> None:
        if full <= begin:
            raise ValueError(f"full: expected more than begin ({begin:g}), got {full:g}")
        self.begin, self.full, self.first_penalty = begin, full, penalty

    def strength(self, progress: float) -> float:
        return min(1.0, max(0.0, (progress - self.begin) / (self.full - self.begin)))

    def penalty(self, progress: float) -> float:
        return self.first_penalty + (1 - self.first_penalty) * self.strength(progress)
