"""Metrics: their unit, their direction, and their tie margin."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A score by which methods are compared.

    Comparisons use the *advantage*: the difference of two scores, positive if the first method is better. For a
    `relative` metric it is the difference of logarithms, so that comparisons are of ratios.
    """

    name: str
    unit: str
    tie_margin: float
    """Largest difference that counts as a tie, in the unit of the scores."""
    higher_is_better: bool = True
    relative: bool = False
    scale: float = 1.0
    """Displayed value of a difference of 1."""
    digits: int = 1
    largest_difference: float = math.inf
    """Largest possible difference, at which intervals are clipped."""

    def advantage(self, a: float, b: float) -> float:
        """The advantage of `a` over `b`."""
        if not (math.isfinite(a) and math.isfinite(b)):
            raise ValueError(f"expected finite values of {self.name}, got {a} and {b}")
        if self.relative:
            if min(a, b) <= 0:
                raise ValueError(
                    f"expected positive values of {self.name}, which is compared by ratios, got {a} and {b}"
                )
            a, b = math.log(a), math.log(b)
        return a - b if self.higher_is_better else b - a

    def display(self, advantage: float) -> str:
        """An advantage as a number without its unit, with a typographic minus sign.

        For a relative metric, the percentage by which an error is lower or a score is higher.
        """
        value = self.scale * advantage
        if self.relative:
            value = 100 * math.expm1(advantage) if self.higher_is_better else -100 * math.expm1(-advantage)
        text = f"{value:.{self.digits}f}"
        return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")

    def interval(self, low: float, high: float) -> str:
        return f"[{self.display(low)}, {self.display(high)}]"

    @property
    def margin(self) -> str:
        """The tie margin as text, such as `±2 points`."""
        value = 100 * self.tie_margin if self.relative else self.scale * self.tie_margin
        return f"±{value:g} {self.unit}"


ACCURACY = Metric("accuracy", "points", tie_margin=0.02, scale=100, largest_difference=1)
FVU = Metric("FVU", "%", tie_margin=0.02, higher_is_better=False, relative=True)
"""Fraction of variance unexplained."""
NORMALIZED_ERROR = Metric("normalized MSE", "%", tie_margin=0.02, higher_is_better=False, relative=True)
PSNR = Metric("PSNR", "dB", tie_margin=0.2, digits=2)
LOSS = Metric("loss", "nats", tie_margin=0.01, higher_is_better=False, digits=3)
