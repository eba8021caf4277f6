"""Two losses on the same linear head. Which tokens count is an argument: tasks score only what they ask for."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LossKind = Literal["classification", "regression"]


def loss(kind: LossKind, prediction: Tensor, target: Tensor, scored: Tensor | None = None) -> Tensor:
    """Mean over what is scored, in float32.

    prediction: (batch, length, outputs) per token or (batch, outputs) per sequence.
    target: class indices of shape prediction.shape[:-1], or values of the prediction's shape.
    scored: bool, prediction.shape[:-1]; None scores everything. Targets that are not scored are never read,
    so a task may leave any filler there.
    """
    expected = prediction.shape[:-1] if kind == "classification" else prediction.shape
    if target.shape != expected:
        raise ValueError(f"{kind} target has shape {tuple(target.shape)}, expected {tuple(expected)}")
    if scored is not None and scored.shape != prediction.shape[:-1]:
        raise ValueError(f"scored has shape {tuple(scored.shape)}, expected {tuple(prediction.shape[:-1])}")
    if scored is not None:
        prediction, target = prediction[scored], target[scored]
        if not len(prediction):  # a batch that asks nothing teaches nothing; the mean of nothing would be NaN
            return prediction.float().sum()
    prediction = prediction.float()
    if kind == "classification":
        return F.cross_entropy(prediction.flatten(0, -2), target.flatten().long())
    return F.mse_loss(prediction, target.to(torch.float32))
