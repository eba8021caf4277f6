"""From nothing to all."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from whence.features.sae.schedules.base import Schedule


class Progressive(Schedule):
    """Position counts more and more, evenly, until a share of training is done."""

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
