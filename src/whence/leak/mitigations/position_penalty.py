"""The source's third fix, and a form of it that sees more than single dimensions."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.leak.mitigations.base import Mitigation, PenaltyInput

SMALL = 1e-8


class PositionPenalty(Mitigation):
    """Predictions from which position can be read off linearly cost: |correlation| · loss · 100 · weight."""

    stops = "the linear part of position in the predictions"
    leaves = "every other shape (edges, bowls, waves), and what single dimensions hide (form=source)"

    def __init__(
        self,
        *,
        weight: Annotated[float, Field(gt=0, description="the source's position_regularization_weight")] = 1.0,
        form: Annotated[
            Literal["source", "r2"],
            Field(
                description="source: mean |r| over output dimensions; r2: position regressed on all of them together"
            ),
        ] = "source",
    ) -> None:
        super().__init__()
        self.weight, self.form = weight, form

    def penalty(self, step: PenaltyInput) -> Tensor | None:
        if len(step.prediction) < 3:
            return None
        told = mean_correlation if self.form == "source" else explained
        return told(step.prediction, step.position.to(step.prediction.dtype)) * step.loss * 100 * self.weight


def mean_correlation(prediction: Tensor, position: Tensor) -> Tensor:
    """Mean |Pearson r| over dimensions."""
    centred, place = prediction - prediction.mean(0), position - position.mean()
    covariance = (centred * place[:, None]).mean(0)
    return (covariance.abs() / (centred.pow(2).mean(0) * place.pow(2).mean() + SMALL).sqrt()).mean()


def explained(prediction: Tensor, position: Tensor, ridge: float = 1e-3) -> Tensor:
    """The share of position's variance that a linear map of the predictions explains."""
    centred, place = prediction - prediction.mean(0), position - position.mean()
    centred = centred / (centred.pow(2).mean(0) + SMALL).sqrt()
    gram = centred.T @ centred / len(centred) + ridge * torch.eye(centred.shape[1], device=centred.device)
    covariance = centred.T @ place / len(centred)
    return covariance @ torch.linalg.solve(gram, covariance) / (place.pow(2).mean() + SMALL)
