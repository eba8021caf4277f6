"""What an evaluation of a sparse autoencoder computes. Definitions: docs/features.md."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from whence.config import Config
from whence.training.config import Metrics


class MetricsGroup(Config):
    """Part of an evaluation."""

    model_config = ConfigDict(allow_inf_nan=True)  # as in `Metrics`


class SelectivityMetrics(MetricsGroup):
    """Position selectivity (ε²) over the features that are frequent enough to have one."""

    features: int
    median: float
    mean: float
    """Alone, it would rise when a dictionary merely shrinks"""
    position_specific: int
    """Features of whose variance position explains at least half"""


class RetentionMetrics(MetricsGroup):
    """Correlation over positions of a feature's mask and of its mean activation with the mask off."""

    features: int
    median: float
    chance: float
    """The same with the masks of other features"""


class MaskOffMetrics(MetricsGroup):
    """Of a dictionary without its mask; the same as with it where it has none."""

    fvu: float
    l0: float
    position_selectivity: SelectivityMetrics
    retention: RetentionMetrics | None = None
    """None: there is no mask"""


class DictionaryMetrics(MetricsGroup):
    """Of a dictionary on held-out activations."""

    fvu: float
    """Fraction of variance unexplained"""
    l0: float
    """Active features per activation"""
    dead: float
    """Share of the features that are never active"""
    activations: int
    position_selectivity: SelectivityMetrics
    mask_off: MaskOffMetrics


class RecoveryMetrics(MetricsGroup):
    """Cosines of known directions with the learned ones."""

    largest: float
    """Mean of the largest cosines"""
    matched: float
    """Mean with every learned direction used once"""
    recovered: float
    """Share of the matched directions above 0.9"""


class FeaturesMetrics(Metrics):
    """Of a run. While training goes on, only the first part of what is held out is used."""

    fvu: float
    l0: float
    curve: float
    """FVU of the first part alone, at every step"""
    final: DictionaryMetrics | None = None
    """None: before the end of training"""
    recovery: dict[str, RecoveryMetrics] = Field(default={})
    """By kind; empty where true directions are not known"""
