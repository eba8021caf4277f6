"""What is measured, as it is stored: by training runs (`LeakMetrics`) and by audits (`Audit`).

A measure that is undefined is None, never 0. One class holds the measures at one mask ratio, for runs and audits alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self, get_args

import pydantic
from pydantic import ConfigDict, Field

from whence.config import Config
from whence.training.config import Metrics

MASK_RATIOS = (0.15, 0.5, 0.9, 1.0)
"""At which runs are evaluated and, by default, models are audited"""
MaskRatio = Annotated[float, Field(gt=0, le=1)]

Leak = Literal["clean", "traces", "undecided", "leaky"]
"""How far predictions depend on absolute position, the least first"""
Outcome = Literal["reconstructs nothing", "no different from untrained", Leak]
"""The verdict of an audit, the one that comes first where several hold"""
LEAKS: tuple[Leak, ...] = get_args(Leak)


def check_ratios(ratios: Sequence[float]) -> Sequence[float]:
    if not ratios or not all(0 < ratio <= 1 for ratio in ratios):
        raise ValueError(f"{tuple(ratios)} are not shares. Allowed: above 0, up to 1.")
    return ratios


class Measures(Config):
    """Numbers that may turn out not to be finite; whoever computes them refuses those by name."""

    model_config = ConfigDict(allow_inf_nan=True)


class PositionProbe(Measures):
    """How well a ridge regression decodes position, as a line and in three other shapes, on rows held out."""

    r2: float
    """Of position itself"""
    mae: float
    """Mean absolute error, in positions"""
    best: float
    """R² of the shape that is decoded best"""
    shape: str
    control: float
    """R² of a random relabelling of positions: what the probe could have memorized"""
    p: float
    """How often shuffled positions are decoded as well"""


class ShiftTest(Measures):
    """Effect of translating content and mask together. Of several placements, the largest effect."""

    sensitivity: float
    """Share of the prediction variance that shifting causes"""
    over_target: float
    """The same variance over that of the targets"""
    limit: float
    """The largest detection limit over placements; 0 for deterministic models"""
    placements: dict[int, float]
    """Shift sensitivity by distance, in steps"""
    prediction_std: float
    """Standard deviation of the predictions that the share is taken of"""


class ContentTest(Measures):
    """Effect of the visible content on predictions: mean squared change over the prediction variance."""

    permuted: float | None
    """Visible tokens permuted within a row; 0 where content, or its order, has no effect"""
    error_factor: float | None
    """By which the error grows under that permutation"""
    replaced: float | None
    """Visible tokens replaced by those of another row"""


class Leakage(Measures):
    """Predictions of masked tokens at one mask ratio, beside their targets."""

    error: float
    """Mean squared error over that of predicting the mean"""
    position_variance: float
    """Variance between positions over the target variance"""
    position_variance_limit: float
    """Its detection limit; 0 for deterministic models"""
    identical: bool
    """Predictions differ by rounding alone"""
    correlation: float | None
    """Mean |Pearson r| with position"""
    correlation_chance: float | None
    correlation_target: float | None
    eta2: float | None
    """Share of the variance that position explains, of any shape"""
    eta2_target: float | None
    similarity: float | None
    """Mean cosine between two predictions of one row"""
    similarity_centered: float | None


class PredictionMeasures(Leakage):
    """What a verdict is based on."""

    shift: ShiftTest

    @property
    def judged(self) -> PredictionMeasures:
        """What a verdict is about: position that an explicit prior adds is no leak."""
        return self


class RatioMetrics(PredictionMeasures):
    """All measures at one mask ratio. The last three are of audits alone."""

    probe: PositionProbe | None
    without_prior: PredictionMeasures | None
    """The same without what an explicit prior adds; None where the model has no such prior"""
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
    """All layers, at one mask ratio."""

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
    """Mean predictions by position, at the highest mask ratio: the outputs that vary most, and how similar they are."""

    positions: list[int]
    dimensions: list[int]
    prediction: list[list[float]]
    target: list[list[float]]
    similarity: list[list[float]] | None
    """Cosine between positions; None where all are equal"""

    @pydantic.model_validator(mode="after")
    def _fit_together(self) -> Self:
        lines, squares = [self.prediction, self.target], [] if self.similarity is None else [self.similarity]
        fit = all(len(one) == len(self.dimensions) for one in lines)
        fit = fit and all(len(one) == len(self.positions) for one in squares)
        if not fit or any(len(line) != len(self.positions) for part in [*lines, *squares] for line in part):
            raise ValueError("rows and positions do not fit together.")
        return self


class Verdict(Config):
    outcome: Outcome
    leak: Leak
    """How far predictions depend on position, whatever they are worth as reconstructions"""
    position_only: bool
    """Predictions do not change when the visible content is replaced"""
    sentences: list[str]
    first_layer: str | None
    """The first layer whose activations depend on position"""
    pathways: list[str]
    """Through which position enters, the strongest first; empty unless the outcome is leaky or traces"""
    thresholds: dict[str, float]

    @property
    def notes(self) -> list[str]:
        """The verdict in a word or two."""
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
    rows: int
    ratios: Annotated[RatioTable, Field(min_length=1)]
    untrained: RatioTable
    """The same of an untrained twin; empty where none is available"""
    profile: LayerProfile | None
    """None where the layers of the model are unknown"""
    pathways: list[PathwayEffect]
    facts: list[str]
    """How the model is masked, and what that explains by construction"""
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
