"""What an audit looks like as JSON, as far as pages rely on it. A store may come from elsewhere, and be anything."""

from __future__ import annotations

from typing import Annotated, Self

import pydantic
from pydantic import ConfigDict, Field

from whence.config import Config
from whence.leak.audit.verdict import Leak, Outcome

Share = Annotated[str, Field(pattern=r"^\d*\.?\d+(e-\d+)?$")]
"""Of tokens masked, as `{:g}` writes it."""


class Shape(Config):
    """More may be there; what is named must be, and must be what it says."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Probe(Shape):
    r2: float
    mae: float
    best: float
    control: float
    p: float


class Shift(Shape):
    of_prediction: float
    limit: float
    placements: dict[str, float]


class Exchange(Shape):
    changed: float | None
    error: float | None
    replaced: float | None


class Measures(Shape):
    error: float
    correlation: float | None
    correlation_chance: float | None
    correlation_target: float | None
    eta2: float | None
    eta2_target: float | None
    similarity: float | None
    similarity_centred: float | None
    spread: float
    spread_limit: float
    probe: Probe | None
    pattern_r2: float | None
    shift: Shift
    content: Exchange | None
    gradient: float | None


class State(Shape):
    moved: float
    best: float | None = None


class Layer(Shape):
    trained: State
    untrained: State | None = None
    pattern_r2: float | None
    ratio: float


class Detector(Shape):
    name: str
    where: str
    note: str
    with_all: float
    without: float | None
    alone: float


class Pictures(Shape):
    position: list[int]
    dimensions: list[int]
    prediction: list[list[float]]
    target: list[list[float]]
    similarity: list[list[float]] | None

    @pydantic.model_validator(mode="after")
    def _fit_together(self) -> Self:
        lines = [self.prediction, self.target]
        squares = [] if self.similarity is None else [self.similarity]
        if any(len(one) != len(self.dimensions) for one in lines) or any(len(s) != len(self.position) for s in squares):
            raise ValueError("they do not fit together.")
        if any(len(line) != len(self.position) for lines in [*lines, *squares] for line in lines):
            raise ValueError("they do not fit together.")
        return self


class Judgement(Shape):
    outcome: Outcome
    leak: Leak
    position_only: bool
    sentences: list[str]
    entry: str | None
    entrances: list[str]
    thresholds: dict[str, float]


class AuditShape(Shape):
    name: str
    tokens: int
    rows: int
    ratios: dict[Share, Measures] = Field(min_length=1)
    untrained: dict[Share, Measures]
    profile: dict[str, Layer]
    sources: list[Detector]
    facts: list[str]
    pictures: Pictures
    verdict: Judgement
