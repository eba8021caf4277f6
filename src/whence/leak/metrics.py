"""Stored measures of training runs (`LeakMetrics`) and of audits (`Audit`).

A measure that is undefined is None, never 0. Runs and audits share one class for the measures at one mask ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self, get_args

import pydantic
from pydantic import ConfigDict, Field

from whence.config import Config
from whence.training.config import Metrics

MASK_RATIOS = (0.15, 0.5, 0.9, 1.0)
"""Mask ratios of the evaluation of runs, and the default of audits"""
MaskRatio = Annotated[float, Field(gt=0, le=1)]

Leak = Literal["clean", "traces", "undecided", "leaky"]
"""How far predictions depend on absolute position, in ascending order"""
Outcome = Literal["reconstructs nothing", "no different from untrained", Leak]
"""The verdict of an audit: the first one that holds"""
LEAKS: tuple[Leak, ...] = get_args(Leak)


def check_ratios(ratios: Sequence[float]) -> Sequence[float]:
    if not ratios or not all(0 < ratio <= 1 for ratio in ratios):
        raise ValueError(f"expected mask ratios above 0 and up to 1, got {tuple(ratios)}.")
    return ratios


class Measures(Config):
    """Measures that may be infinite or not a number; `check_finite` reports those by name."""

    model_config = ConfigDict(allow_inf_nan=True)


class PositionProbe(Measures):
    """Ridge regression of position, and of three other functions of position, on held-out rows."""

    r2: float
    """R² of position itself"""
    mae: float
    """Mean absolute error, in positions"""
    best: float
    """R² of the function of position with the highest R²"""
    shape: str
    """The name of that function"""
    control: float
    """R² of a random relabelling of positions, which the probe could only memorize"""
    p: float
    """Share of shuffled positions that are decoded at least as well"""


class ShiftTest(Measures):
    """Effect of translating content and mask together: the largest over several placements."""

    sensitivity: float
    """Share of the prediction variance that shifting causes"""
    over_target: float
    """The same variance, as a share of the target variance"""
    limit: float
    """The largest detection limit over placements; 0 for deterministic models"""
    placements: dict[int, float]
    """Shift sensitivity by distance, in steps"""
    prediction_std: float
    """Standard deviation of the predictions, the reference of the share"""


class ContentTest(Measures):
    """Effect of the visible content on predictions: mean squared change over the prediction variance."""

    permuted: float | None
    """Visible tokens permuted within a row; 0 where content, or its order, has no effect"""
    error_factor: float | None
    """Factor by which the error grows under that permutation"""
    replaced: float | None
    """Visible tokens replaced by those of another row"""


class Leakage(Measures):
    """Measures of the predictions of masked tokens at one mask ratio, and of their targets."""

    error: float
    """Normalized MSE: mean squared error over that of predicting the mean"""
    position_variance: float
    """Variance of predictions between positions, as a share of the target variance"""
    position_variance_limit: float
    """Its detection limit; 0 for deterministic models"""
    identical: bool
    """Predictions are equal up to rounding"""
    correlation: float | None
    """Mean |Pearson r| with position"""
    correlation_chance: float | None
    correlation_target: float | None
    eta2: float | None
    """Share of the prediction variance that position explains, whatever the function"""
    eta2_target: float | None
    similarity: float | None
    """Mean cosine between two predictions of one row"""
    similarity_centered: float | None


class PredictionMeasures(Leakage):
    """The measures that a verdict is based on."""

    shift: ShiftTest

    @property
    def judged(self) -> PredictionMeasures:
        """The measures for the verdict: position that an explicit prior adds is no leak."""
        return self


class RatioMetrics(PredictionMeasures):
    """All measures at one mask ratio. Only audits set the last three."""

    probe: PositionProbe | None
    without_prior: PredictionMeasures | None
    """The same without the explicit prior; None where the model has none"""
    pattern_r2: float | None = None
    """R² with which the mask pattern alone predicts position"""
    content: ContentTest | None = None
    """None where at most one token is visible"""
    gradient: float | None = None
    """‖∂L/∂position‖ / (‖∂L/∂content‖ + ‖∂L/∂position‖)"""

    @property
    def judged(self) -> PredictionMeasures:
        return self.without_prior or self


RatioTable = dict[MaskRatio, RatioMetrics]


class LeakMetrics(Metrics):
    """Leakage and error of a run at every mask ratio."""

    ratios: RatioTable


class LayerMeasures(Measures):
    """Position in the activations at masked tokens after one layer."""

    shift: float
    """Shift sensitivity"""
    probe: PositionProbe | None


class LayerComparison(Config):
    trained: LayerMeasures
    untrained: LayerMeasures | None = None


class LayerProfile(Measures):
    """Measures after every layer, at one mask ratio."""

    ratio: MaskRatio
    pattern_r2: float | None
    layers: dict[str, LayerComparison] = Field(min_length=1)


class PathwayEffect(Measures):
    """Shift sensitivity with all pathways, without this one, and with this one alone."""

    name: str
    where: str
    note: str
    with_all: float
    without: float | None
    alone: float


class PositionMeans(Config):
    """Mean predictions by position at the highest mask ratio, for the outputs that vary most between positions."""

    positions: list[int]
    dimensions: list[int]
    prediction: list[list[float]]
    target: list[list[float]]
    similarity: list[list[float]] | None
    """Cosine similarity between positions; None where all predictions are equal"""

    @pydantic.model_validator(mode="after")
    def _fit_together(self) -> Self:
        lines, squares = [self.prediction, self.target], [] if self.similarity is None else [self.similarity]
        fit = all(len(one) == len(self.dimensions) for one in lines)
        fit = fit and all(len(one) == len(self.positions) for one in squares)
        if not fit or any(len(line) != len(self.positions) for part in [*lines, *squares] for line in part):
            raise ValueError("expected one row per output and one value per position.")
        return self


class Verdict(Config):
    outcome: Outcome
    leak: Leak
    """How far predictions depend on position, regardless of how well they reconstruct"""
    position_only: bool
    """Predictions do not change when the visible content is replaced"""
    sentences: list[str]
    first_layer: str | None
    """The first layer whose activations depend on position"""
    pathways: list[str]
    """Pathways through which position enters, the strongest first; empty unless the outcome is leaky or traces"""
    thresholds: dict[str, float]

    @property
    def notes(self) -> list[str]:
        """The verdict as badges."""
        return [self.outcome, *["position only"] * self.position_only]


class Audit(Config):
    """All results of an audit: the verdict with its reasons, and every measure. `whence.audit` returns one.

    `print` shows the verdict in words, a notebook shows it with the table of pathways, and `model_dump()` returns all
    numbers.

    Example:
        >>> class Prior(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.table = torch.nn.Parameter(torch.randn(16, 3))
        ...     def forward(self, x):
        ...         return x + self.table
        >>> result = whence.audit(Prior(), torch.randn(32, 16, 3), ratios=[0.5])
        >>> result.tokens, list(result.ratios)
        (16, [0.5])
        >>> result.verdict.leak
        'leaky'
    """

    name: str
    tokens: int
    """Tokens per example"""
    rows: int
    """Examples"""
    ratios: Annotated[RatioTable, Field(min_length=1)]
    untrained: RatioTable
    """Measures of an untrained twin; empty where none is available"""
    profile: LayerProfile | None
    """None where the layers of the model are unknown"""
    pathways: list[PathwayEffect]
    facts: list[str]
    """Sentences on how the model is masked, and on what that explains by construction"""
    means: PositionMeans
    verdict: Verdict

    def __str__(self) -> str:
        return "\n".join([self.name, *self.verdict.sentences])

    def _repr_html_(self) -> str:
        from whence.leak.page import audit_parts
        from whence.report.notebook import fragment

        return fragment(audit_parts(self))


def at_ratio(ratio: float) -> str:
    return f"at mask ratio {ratio:g}"
