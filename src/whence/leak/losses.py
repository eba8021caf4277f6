"""How wrong a prediction of masked tokens is."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Loss = Literal["mse", "mae", "huber", "cosine", "combined"]


def reconstruction(kind: Loss, prediction: Tensor, target: Tensor) -> Tensor:
    """Over masked tokens, (tokens, features) each. combined: mse and a tenth of cosine."""
    if kind == "mae":
        return F.l1_loss(prediction, target)
    if kind == "huber":
        return F.huber_loss(prediction, target)
    cosine = 1 - F.cosine_similarity(prediction, target, dim=-1).mean()
    if kind == "cosine":
        return cosine
    error = F.mse_loss(prediction, target)
    return error if kind == "mse" else error + 0.1 * cosine
