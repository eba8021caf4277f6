"""Untrained twins: the same architecture with newly initialized weights.

An untrained model already depends on position. What training caused is what the model has and its twins have not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy import stats
from torch import nn

from whence.leak.audit.target import AuditTarget
from whence.models.init import initialise
from whence.random import derive, preserve_rng_state

TWINS = 5
"""Untrained twins that are needed for a prediction interval."""
CONFIDENCE = 0.99
CLEAR = 0.25
"""Difference of normalized errors from one twin that needs no further twins."""
NEGLIGIBLE = 0.01
"""Difference of normalized errors that is never called one."""


@dataclass(frozen=True)
class TwinComparison:
    """Normalized errors of a model beside those of its untrained twins."""

    count: int
    """Twins that were measured"""
    intervals: dict[float, tuple[float, float]]
    """By mask ratio: prediction interval for one more untrained model"""
    different: bool
    """At one mask ratio or more, the error of the model lies outside"""


def compare_errors(errors: Mapping[float, float], twins: Sequence[Mapping[float, float]]) -> TwinComparison:
    """Errors by mask ratio, of the model and of each twin. Errors above 1 count as 1: both reconstruct nothing."""
    intervals = {ratio: _interval([min(1.0, twin[ratio]) for twin in twins]) for ratio in errors}
    outside = [not low <= min(1.0, errors[ratio]) <= high for ratio, (low, high) in intervals.items()]
    return TwinComparison(len(twins), intervals, any(outside))


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """In which one more value of the same kind lies with 99 % probability, if they are normally distributed."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean - CLEAR, mean + CLEAR
    deviation = float(torch.tensor(values, dtype=torch.float64).std())
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    reach = max(NEGLIGIBLE, quantile * deviation * (1 + 1 / len(values)) ** 0.5)
    return mean - reach, mean + reach


def untrained_twins(
    model: nn.Module, target_of: Callable[[nn.Module], AuditTarget]
) -> Callable[[int], AuditTarget | None]:
    """`AuditTarget.untrained` of a model: `target_of` its copies with new weights."""

    def twin(seed: int) -> AuditTarget | None:
        new = reinitialized(model, seed)
        return None if new is None else target_of(new)

    return twin


def reinitialized(model: nn.Module, seed: int) -> nn.Module | None:
    """A copy of the model with new weights; None where that is not possible.

    Models of transformers are built from their configuration. In others, every submodule that has `reset_parameters`
    uses it, and values of parameters that none of them resets are permuted.
    """
    try:
        if hasattr(model, "config") and hasattr(model, "_init_weights"):
            with preserve_rng_state():
                torch.manual_seed(seed)
                return type(model)(model.config).float()  # pyright: ignore[reportCallIssue]
        twin = copy.deepcopy(model)
    except Exception:  # whatever a module of somebody else's raises: locks, open files, other constructors
        return None
    initialise(twin, seed)
    with preserve_rng_state(), torch.no_grad():
        torch.manual_seed(derive(seed, "untrained"))
        for module in twin.modules():
            reset = getattr(module, "_reset_parameters", None)  # as nn.MultiheadAttention and nn.Transformer call it
            if callable(reset):
                reset()
        for before, after in zip(model.parameters(), twin.parameters(), strict=True):
            if torch.equal(before, after):
                after.copy_(after.flatten()[torch.randperm(after.numel())].view_as(after))
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    return None if same else twin
