"""What a schedule is: two numbers as functions of how much of training is done."""

from __future__ import annotations

from whence.registry import Variant


class Schedule(Variant):
    """progress: the share of training that is done, 0 to 1."""

    def strength(self, progress: float) -> float:
        """How far masks and whatever else depends on position count, 0 to 1."""
        return 1.0

    def penalty(self, progress: float) -> float:
        """What the price of being active is multiplied with."""
        return 1.0
