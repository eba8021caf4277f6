"""Mitigations of position leakage, freely combined. `MITIGATIONS.choose("position_penalty:form=r2")`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.encodings.base import Count, Encoding
from whence.leak.masks import distances
from whence.registry import Choice, Registry, Variant

SMALL = 1e-8


@dataclass(frozen=True)
class PenaltyInput:
    """One step of training, as a penalty sees it."""

    prediction: Tensor
    """(masked tokens of the batch, features)"""
    position: Tensor
    """(masked tokens of the batch,)"""
    ratio: float
    """Share of tokens that are masked."""
    loss: Tensor


class Mitigation(Variant, nn.Module):
    """Meant to keep position out of the predictions of masked tokens. It overrides only the hooks it uses."""

    stops: ClassVar[str]
    """What it can stop, in a few words."""
    leaves: ClassVar[str]
    """What it cannot."""

    def check(self, replacement: str, temporal: Encoding) -> None:
        """Raise ValueError for a model that would undo the mitigation."""

    def fit(self, some: Tensor, others: Tensor) -> None:
        """Before training: examples (examples, tokens, features) of two halves of the training recordings."""

    def content(self, tokens: Tensor) -> Tensor:
        """What the model is shown; `restore` undoes it at the end."""
        return tokens

    def restore(self, prediction: Tensor) -> Tensor:
        return prediction

    def encoding(self, vector: Tensor, masked: Tensor) -> Tensor:
        """What is added to embedded tokens for their time, (rows, tokens, d_model). What is added for their channel
        stays: without its channel, a masked token could not be predicted.
        """
        return vector

    def order(self, x: Tensor) -> Tensor | None:
        """(rows, tokens): the place in x of the token that the mixer reads first, second, …"""
        return None

    def embed(self, x: Tensor, visible: Tensor) -> Tensor:
        """Embedded tokens, with what else they are told."""
        return x

    def writes(self, visible: Tensor, layer: int) -> Tensor | None:
        """Which tokens may write, and how strongly; None: all."""
        return None

    def penalty(self, step: PenaltyInput) -> Tensor | None:
        """What is added to the loss."""
        return None


MITIGATIONS: Registry[Mitigation] = Registry(__name__, Mitigation)
MitigationChoice = Annotated[Choice[Mitigation], MITIGATIONS]


class ZeroMaskedPositions(Mitigation):
    """Masked tokens get no additive encoding of time. Which channel they belong to is part of the question."""

    stops = "additive encodings of time at masked tokens"
    leaves = "the order in which a mixer reads: state, convolution edge, causal order; rotations and biases"

    def encoding(self, vector: Tensor, masked: Tensor) -> Tensor:
        return vector.masked_fill(masked[..., None], 0)


class VariancePenalty(Mitigation):
    """When nearly all is masked, predictions that differ cost: variance · loss · weight."""

    stops = "large differences between predictions when nearly everything is masked"
    leaves = "small ones: what is rescaled still tells position; nothing below from_ratio"

    def __init__(
        self,
        *,
        weight: Annotated[float, Field(gt=0, le=1e9, description="the source's 1000")] = 1000.0,
        from_ratio: Annotated[float, Field(ge=0, le=1, description="share masked from which on it applies")] = 0.95,
    ) -> None:
        super().__init__()
        self.weight, self.from_ratio = weight, from_ratio

    def penalty(self, step: PenaltyInput) -> Tensor | None:
        if step.ratio < self.from_ratio or len(step.prediction) < 2:
            return None
        return step.prediction.var(0).mean() * step.loss * self.weight


class PositionPenalty(Mitigation):
    """Predictions from which position can be read off linearly cost: |correlation| · loss · 100 · weight."""

    stops = "the linear part of position in the predictions"
    leaves = "every other shape (edges, bowls, waves), and what single dimensions hide (form=source)"

    def __init__(
        self,
        *,
        weight: Annotated[float, Field(gt=0, le=1e9, description="the source's position_regularization_weight")] = 1.0,
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
        association = mean_correlation if self.form == "source" else explained
        return association(step.prediction, step.position.to(step.prediction.dtype)) * step.loss * 100 * self.weight


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


class PermuteTokens(Mitigation):
    """In training the mixer reads the tokens in a random order, which is undone behind it."""

    stops = "what the order of reading tells"
    leaves = "additive encodings; and it takes away the order of the content, too"

    def __init__(
        self,
        *,
        prob: Annotated[float, Field(ge=0, le=1, description="the source's shuffle_sequences_prob")] = 1.0,
        always: Annotated[bool, Field(description="also when the model is used; false: in training only")] = False,
    ) -> None:
        super().__init__()
        self.prob, self.always = prob, always

    def order(self, x: Tensor) -> Tensor | None:
        if not (self.training or self.always):
            return None
        rows, tokens = x.shape[:2]
        shuffled = torch.rand(rows, tokens, device=x.device).argsort(1)
        chosen = torch.rand(rows, 1, device=x.device) < self.prob
        return torch.where(chosen, shuffled, torch.arange(tokens, device=x.device))


class ContentGated(Mitigation):
    """Position relative to content, never absolute: masked tokens do not write, and know how far visible ones are.

    A masked token advances no state, enters no convolution and is no key of attention. Every token is told how many
    steps it is to the nearest visible one on either side, or that there is none. In deeper layers a masked token
    between two visible ones writes with a weight that falls with its distance to the nearer; outside them it never
    does, since how many tokens there are out to the edge would reveal where the edge is.
    """

    stops = "every absolute position: nothing but content, and the distance to it, reaches a prediction"
    leaves = (
        "what the arrangement of masked and visible tokens itself tells; data whose place matters need position_prior"
    )

    def __init__(
        self,
        d_model: Count,
        *,
        reach: Annotated[int, Field(ge=1, le=2**20, description="distances beyond this count as this")] = 32,
        spread: Annotated[
            float,
            Field(
                ge=0,
                le=1e6,
                description="deeper layers: distance over which writing fades; 0: masked tokens never write",
            ),
        ] = 2.0,
    ) -> None:
        super().__init__()
        self.reach, self.spread = reach, spread
        self.before = nn.Embedding(reach + 1, d_model)
        self.after = nn.Embedding(reach + 1, d_model)

    def reset_parameters(self) -> None:
        for table in (self.before, self.after):
            nn.init.normal_(table.weight, std=0.5)

    def check(self, replacement: str, temporal: Encoding) -> None:
        if replacement == "noise":
            raise ValueError(
                "replacement: 'noise' makes masked tokens differ. Allowed with content_gated: zeros, learned."
            )
        if temporal.shift == "absolute" and set(temporal.hooks()) - {"embed"}:
            raise ValueError(
                f"temporal: {temporal.name} tells attention absolute positions. Allowed with content_gated: "
                "encodings that are relative, or added to tokens."
            )

    def encoding(self, vector: Tensor, masked: Tensor) -> Tensor:
        return torch.zeros_like(vector)

    def embed(self, x: Tensor, visible: Tensor) -> Tensor:
        before, after = (distance.clamp(max=self.reach) for distance in distances(visible))
        return x + self.before(before) + self.after(after)

    def writes(self, visible: Tensor, layer: int) -> Tensor | None:
        if layer == 0 or not self.spread:
            return visible
        before, after = distances(visible)
        between = (before > 0) & (after > 0)
        fading = torch.exp(-torch.minimum(before, after) / self.spread)
        return torch.where(visible, 1.0, torch.where(between, fading, 0.0))


class PositionPrior(Mitigation):
    """An additive table of what is usual at each place, taken off before the model and put back behind it.

    It is estimated from the training data alone and shrunk towards zero by as much as its differences between places
    could be chance, so that on stationary data it vanishes. Switched off, it shows what the model says without it.
    """

    stops = "the need to learn position in hidden state, where place legitimately predicts"
    leaves = "whatever else the model does: it adds in the open and hides nothing; combine it with content_gated"

    table: Tensor

    def __init__(
        self,
        tokens: Count,
        features: Count,
        *,
        on: Annotated[bool, Field(description="false: keep it and leave it out of predictions")] = True,
    ) -> None:
        super().__init__()
        self.on = on
        self.register_buffer("table", torch.zeros(tokens, features))

    def fit(self, some: Tensor, others: Tensor) -> None:
        """What two halves of the recordings agree on is position; the rest of their means is chance."""
        one, two = (tokens.mean(0) - tokens.mean((0, 1)) for tokens in (some, others))
        usual = (one + two) / 2
        share = ((one * two).mean(0) / usual.pow(2).mean(0).clamp(min=1e-12)).clamp(0, 1)
        self.table.copy_(share * usual)

    def content(self, tokens: Tensor) -> Tensor:
        return tokens - self.table

    def restore(self, prediction: Tensor) -> Tensor:
        return prediction + self.table if self.on else prediction
