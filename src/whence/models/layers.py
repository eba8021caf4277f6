"""Parts of models: linear maps, embeddings, the head that points at tokens, pooling, and the losses on a head."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whence.tasks import Goal

Pool = Literal["last", "mean", "first"]
EMBEDDING_SCALE = math.sqrt(0.5)  # the root mean square of a sinusoid of amplitude 1: see models/init.py


class Linear(nn.Linear):
    """nn.Linear whose weights start as N(0, scale²/fan_in): unit-variance inputs give outputs of deviation `scale`.

    The scale lives in the module because `initialise` resets every module on its own, knowing only its name.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, scale: float = 1.0) -> None:
        self.scale = scale  # nn.Linear's constructor already resets
        super().__init__(in_features, out_features, bias=bias)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.scale / math.sqrt(self.in_features))
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class TokenEmbedding(nn.Embedding):
    """Token embeddings whose energy equals that of an additive encoding of amplitude 1."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=EMBEDDING_SCALE)


class FeatureEmbedding(Linear):
    """The same for continuous inputs of unit variance."""

    def __init__(self, features: int, d_model: int) -> None:
        super().__init__(features, d_model, scale=EMBEDDING_SCALE)


class PlaceHead(nn.Module):
    """Points at tokens: what the sequence as a whole asks for is compared with every token of it."""

    def __init__(self, d_model: int, places: int) -> None:
        super().__init__()
        self.places = places
        self.query = Linear(d_model, places * d_model)
        self.key = Linear(d_model, d_model)

    def forward(self, whole: Tensor, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        """(batch, d), (batch, length, d) → logits over tokens, (batch, places, length)."""
        query = self.query(whole).unflatten(-1, (self.places, -1))
        logits = query @ self.key(tokens).transpose(1, 2) / math.sqrt(tokens.shape[-1])
        return logits if valid is None else logits.masked_fill(~valid[:, None], -torch.inf)


def pooled(x: Tensor, pool: Pool, valid: Tensor | None) -> Tensor:
    """(batch, length, d) → (batch, d), over valid tokens only."""
    if pool == "mean":
        if valid is None:
            return x.mean(1)
        weights = valid.to(x.dtype)[..., None]
        return (x * weights).sum(1) / weights.sum(1).clamp(min=1)
    if valid is None:
        return x[:, -1 if pool == "last" else 0]
    index = valid.shape[1] - 1 - valid.flip(1).int().argmax(1) if pool == "last" else valid.int().argmax(1)
    return x.gather(1, index[:, None, None].expand(-1, 1, x.shape[-1])).squeeze(1)


def loss(kind: Goal, prediction: Tensor, target: Tensor, scored: Tensor | None = None) -> Tensor:
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
