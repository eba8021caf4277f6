"""Metrics of sparse autoencoders. Definitions: docs/features.md."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from whence.config import Config
from whence.training.config import Metrics


class MetricsGroup(Config):
    """Part of an evaluation."""

    model_config = ConfigDict(allow_inf_nan=True)  # as in `Metrics`


class SelectivityMetrics(MetricsGroup):
    """Position selectivity (ε²) over the features that are active often enough to estimate it."""

    features: int
    median: float
    mean: float
    """Rises when a dictionary merely has fewer features, so that it is no measure on its own"""
    position_specific: int
    """Number of features with at least half of their variance explained by position"""


class RetentionMetrics(MetricsGroup):
    """Correlation over positions between the mask value of a feature and its mean activation with the mask off."""

    features: int
    median: float
    chance: float
    """The same correlation with the masks of other features"""


class MaskOffMetrics(MetricsGroup):
    """Metrics with the mask off; equal to those with the mask if there is none."""

    fvu: float
    l0: float
    position_selectivity: SelectivityMetrics
    retention: RetentionMetrics | None = None
    """None if there is no mask"""


class DictionaryMetrics(MetricsGroup):
    """Metrics on held-out activations."""

    fvu: float
    """Fraction of variance unexplained"""
    l0: float
    """Active features per activation"""
    dead: float
    """Share of features that are never active"""
    activations: int
    position_selectivity: SelectivityMetrics
    mask_off: MaskOffMetrics


class RecoveryMetrics(MetricsGroup):
    """Cosine similarity between true and learned directions."""

    largest: float
    """Mean over true directions of the largest cosine"""
    matched: float
    """Mean with true and learned directions matched one to one"""
    recovered: float
    """Share of matched directions with a cosine of 0.9 or more"""


class FeaturesMetrics(Metrics):
    """Metrics of a run. Before the end of training, they are computed on the first part of the held-out data."""

    fvu: float
    """Fraction of variance unexplained"""
    l0: float
    """Active features per activation"""
    curve: float
    """FVU on the first part of the held-out data, for learning curves"""
    final: DictionaryMetrics | None = None
    """None before the end of training"""
    recovery: dict[str, RecoveryMetrics] = Field(default={})
    """By kind; empty where true directions are not known"""
