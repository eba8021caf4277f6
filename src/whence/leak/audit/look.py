"""One look at a model, with a share of its tokens masked: all that decides whether it leaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whence.leak.audit.measures import Sample, deviation, leakage
from whence.leak.audit.probe import FOLDS, probe
from whence.leak.audit.shift import shift_effect
from whence.leak.audit.target import AuditTarget
from whence.leak.pathways.position_prior import priors_of, without


def look(
    target: AuditTarget, sampled: Callable[[], Sample], ratio: float, seed: int = 0
) -> tuple[Sample, dict[str, Any]]:
    """`sampled` asks the model. Under "inside": what is left of the leak when a prior in the open is taken away."""
    sample, found = deciding(target, sampled, ratio, seed)
    few = len(sample.places.unique()) < FOLDS  # too few for a probe, as when only the last are masked
    told = None if found["identical"] or few else probe(sample)
    priors = priors_of(target.model)
    inside = None
    if priors:
        with without(priors):
            inside = deciding(target, sampled, ratio, seed)[1]
    return sample, {**found, "probe": told.to_json() if told else None, "inside": inside}


def deciding(
    target: AuditTarget, sampled: Callable[[], Sample], ratio: float, seed: int
) -> tuple[Sample, dict[str, Any]]:
    """The measures that a verdict on position goes by."""
    sample = sampled()
    return sample, {**leakage(sample), "shift": shift_effect(target, ratio, deviation(sample.target), seed)}
