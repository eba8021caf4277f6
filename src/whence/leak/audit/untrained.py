"""Untrained twins: the same architecture with newly initialized weights.

Predictions of an untrained model already depend on position. The effect of training is the difference from its twins.
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
"""Untrained twins that a prediction interval is computed from."""
CONFIDENCE = 0.99
CLEAR = 0.25
"""Difference in normalized MSE from the first twin above which no further twins are measured."""
NEGLIGIBLE = 0.01
"""Difference in normalized MSE that is never considered an effect of training."""


@dataclass(frozen=True)
class TwinComparison:
    """Normalized MSE of a model compared with that of its untrained twins."""

    count: int
    """Twins that were measured"""
    intervals: dict[float, tuple[float, float]]
    """By mask ratio: prediction interval for one more untrained model"""
    different: bool
    """At one mask ratio or more, the error of the model lies outside"""


def compare_errors(errors: Mapping[float, float], twins: Sequence[Mapping[float, float]]) -> TwinComparison:
    """Compare the errors of the model and of each twin by mask ratio. Errors above 1 count as 1 (no reconstruction)."""
    intervals = {ratio: _interval([min(1.0, twin[ratio]) for twin in twins]) for ratio in errors}
    outside = [not low <= min(1.0, errors[ratio]) <= high for ratio, (low, high) in intervals.items()]
    return TwinComparison(len(twins), intervals, any(outside))


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """99 % prediction interval for one more value, assuming a normal distribution."""
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
    except Exception:  # modules of users may raise anything: locks, open files, other constructors
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
