"""Logistic regression with scikit-learn's default objective: ½‖w‖² + C Σ log-loss, the intercept free."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

PRECISE = 1e-8
STEPS = 100


def fit(features: Tensor, positive: Tensor, strength: float = 1.0) -> Tensor:
    """(features + 1,) float64: weights, and the intercept behind them. Newton's method, halving steps that go too far.

    strength: C. The optimum is unique, so that the way there leaves no trace in it.
    """
    x = _with_one(features)
    sign = positive.double() * 2 - 1
    penalty = torch.ones(x.shape[1], dtype=torch.float64)
    penalty[-1] = 0

    def objective(weights: Tensor) -> Tensor:
        return 0.5 * (penalty * weights**2).sum() + strength * softplus(-sign * (x @ weights)).sum()

    weights = torch.zeros(x.shape[1], dtype=torch.float64)
    value = objective(weights)
    for _ in range(STEPS):
        wrong = torch.sigmoid(-sign * (x @ weights))
        slope = penalty * weights - strength * (x.T @ (sign * wrong))
        if slope.abs().max() <= PRECISE:
            break
        curvature = strength * (x.T * (wrong * (1 - wrong))) @ x + torch.diag(penalty)
        curvature[-1, -1] += PRECISE  # the intercept's may vanish where classes lie far apart
        step = torch.linalg.solve(curvature, slope)
        size, promised = 1.0, slope @ step
        while (after := objective(weights - size * step)) > value - 1e-4 * size * promised and size > 1e-10:
            size /= 2
        if after >= value:
            break  # as low as float64 can tell
        weights, value = weights - size * step, after
    return weights


def predict(weights: Tensor, features: Tensor) -> Tensor:
    """bool (n,)"""
    return _with_one(features) @ weights > 0


def _with_one(features: Tensor) -> Tensor:
    ones = torch.ones(len(features), 1, dtype=torch.float64)
    return torch.cat([features.double(), ones], 1)
