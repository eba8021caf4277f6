"""The source's second fix."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.leak.mitigations.base import Mitigation, PenaltyInput


class VariancePenalty(Mitigation):
    """When nearly all is masked, predictions that differ cost: variance · loss · weight."""

    stops = "large differences between predictions when nearly everything is masked"
    leaves = "small ones: what is rescaled still tells position; nothing below from_ratio"

    def __init__(
        self,
        *,
        weight: Annotated[float, Field(gt=0, description="the source's 1000")] = 1000.0,
        from_ratio: Annotated[float, Field(ge=0, le=1, description="share masked from which on it applies")] = 0.95,
    ) -> None:
        super().__init__()
        self.weight, self.from_ratio = weight, from_ratio

    def penalty(self, step: PenaltyInput) -> Tensor | None:
        if step.ratio < self.from_ratio or len(step.prediction) < 2:
            return None
        return step.prediction.var(0).mean() * step.loss * self.weight
