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
    """Inputs of a penalty at one training step."""

    prediction: Tensor
    """(masked tokens of the batch, features)"""
    position: Tensor
    """(masked tokens of the batch,)"""
    ratio: float
    """Share of tokens that are masked."""
    loss: Tensor


class Mitigation(Variant, nn.Module):
    """Reduces position leakage into predictions of masked tokens. Subclasses override only the hooks that they use."""

    stops: ClassVar[str]
    """Leakage that it can prevent, as a phrase."""
    leaves: ClassVar[str]
    """Leakage that it cannot prevent, as a phrase."""

    def check(self, replacement: str, temporal: Encoding) -> None:
        """Raise ValueError for a model that would undo the mitigation."""

    def fit(self, some: Tensor, others: Tensor) -> None:
        """Before training: examples (examples, tokens, features) of two halves of the training recordings."""

    def content(self, tokens: Tensor) -> Tensor:
        """Input tokens as the model receives them; `restore` is the inverse on predictions."""
        return tokens

    def restore(self, prediction: Tensor) -> Tensor:
        return prediction

    def encoding(self, vector: Tensor, masked: Tensor) -> Tensor:
        """The temporal encoding that is added to embedded tokens, (rows, tokens, d_model). The channel encoding is not
        changed: without its channel, a masked token could not be predicted.
        """
        return vector

    def order(self, x: Tensor) -> Tensor | None:
        """Order in which the mixer reads the tokens, (rows, tokens) of indices into x; None: unchanged."""
        return None

    def embed(self, x: Tensor, visible: Tensor) -> Tensor:
        """Embedded tokens, with further embeddings added."""
        return x

    def writes(self, visible: Tensor, layer: int) -> Tensor | None:
        """Weight with which each token writes into the state, (rows, tokens) from 0 to 1; None: all write."""
        return None

    def penalty(self, step: PenaltyInput) -> Tensor | None:
        """A term to add to the loss; None: nothing."""
        return None


MITIGATIONS: Registry[Mitigation] = Registry(__name__, Mitigation)
MitigationChoice = Annotated[Choice[Mitigation], MITIGATIONS]


class ZeroMaskedPositions(Mitigation):
    """Set additive time encodings to zero at masked tokens. Channel encodings are kept.

    A masked token needs its channel encoding, since the channel is part of what is to be predicted.
    """

    stops = "additive time encodings at masked tokens"
    leaves = "recurrent state, convolution edge, causal order; rotations and biases in attention"

    def encoding(self, vector: Tensor, masked: Tensor) -> Tensor:
        return vector.masked_fill(masked[..., None], 0)


class VariancePenalty(Mitigation):
    """Penalize the variance of predictions at high mask ratios: variance · loss · weight."""

    stops = "large differences between predictions at high mask ratios"
    leaves = "small differences, from which position can still be decoded; any leakage below from_ratio"

    def __init__(
        self,
        *,
        weight: Annotated[float, Field(gt=0, le=1e9, description="weight of the penalty")] = 1000.0,
        from_ratio: Annotated[
            float, Field(ge=0, le=1, description="lowest mask ratio at which the penalty applies; 0: at all")
        ] = 0.95,
    ) -> None:
        super().__init__()
        self.weight, self.from_ratio = weight, from_ratio

    def penalty(self, step: PenaltyInput) -> Tensor | None:
        if step.ratio < self.from_ratio or len(step.prediction) < 2:
            return None
        return step.prediction.var(0).mean() * step.loss * self.weight


class PositionPenalty(Mitigation):
    """Penalize the linear correlation of predictions with position: |r| · loss · 100 · weight."""

    stops = "linear dependence of predictions on position"
    leaves = "non-linear dependence (edges, parabolas, waves) and, with form=source, linear combinations of dimensions"

    def __init__(
        self,
        *,
        weight: Annotated[
            float, Field(gt=0, le=1e9, description="weight of the penalty (position_regularization_weight)")
        ] = 1.0,
        form: Annotated[
            Literal["source", "r2"],
            Field(
                description="source: mean |r| over output dimensions; r2: R² of position regressed on all dimensions"
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
    centered, place = prediction - prediction.mean(0), position - position.mean()
    covariance = (centered * place[:, None]).mean(0)
    return (covariance.abs() / (centered.pow(2).mean(0) * place.pow(2).mean() + SMALL).sqrt()).mean()


def explained(prediction: Tensor, position: Tensor, ridge: float = 1e-3) -> Tensor:
    """The share of the variance of position that a linear map of the predictions explains."""
    centered, place = prediction - prediction.mean(0), position - position.mean()
    centered = centered / (centered.pow(2).mean(0) + SMALL).sqrt()
    gram = centered.T @ centered / len(centered) + ridge * torch.eye(centered.shape[1], device=centered.device)
    covariance = centered.T @ place / len(centered)
    return covariance @ torch.linalg.solve(gram, covariance) / (place.pow(2).mean() + SMALL)


class PermuteTokens(Mitigation):
    """Permute the tokens randomly before the mixer during training, and restore their order after it."""

    stops = "leakage through the order in which the mixer reads"
    leaves = "additive encodings; it also removes the order of the content"

    def __init__(
        self,
        *,
        prob: Annotated[
            float, Field(ge=0, le=1, description="probability of permuting an example (shuffle_sequences_prob)")
        ] = 1.0,
        always: Annotated[bool, Field(description="permute during evaluation, too; false: in training only")] = False,
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
    """Keep masked tokens from writing into the state, and embed distances to visible tokens instead of positions.

    A masked token advances no state, enters no convolution and is no key of attention. Every token gets embeddings of
    its distance to the nearest visible token on either side, or of the fact that there is none. In deeper layers, a
    masked token between two visible ones writes with a weight that falls with the distance to the nearer one. Outside
    of them it never writes, since the number of tokens up to the edge would reveal the position of the edge.
    """

    stops = "all absolute position: predictions depend on content and on the distance to it only"
    leaves = "position information in the mask pattern; data with position-dependent means need position_prior"

    def __init__(
        self,
        d_model: Count,
        *,
        reach: Annotated[int, Field(ge=1, le=2**20, description="largest distance to embed, in tokens")] = 32,
        spread: Annotated[
            float,
            Field(
                ge=0,
                le=1e6,
                description="decay length of the weight with which masked tokens write in deeper layers, in tokens; "
                "0: they never write",
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
                "replacement: content_gated expects equal masked tokens, got 'noise', which makes them differ. Use "
                "zeros or learned."
            )
        if temporal.shift == "absolute" and set(temporal.hooks()) - {"embed"}:
            raise ValueError(
                "temporal: content_gated expects an encoding that is relative or added to tokens, got "
                f"{temporal.name}, through which absolute positions enter attention. Use a relative encoding, or none."
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
    """Subtract the mean of each position before the model, and add it to the predictions (an explicit prior).

    The table of means is estimated from the training data and shrunk towards zero by as much as its differences between
    positions could be chance, so that it vanishes on stationary data. With `on=false`, predictions are without it.
    """

    stops = "the need to learn the means of positions, where position predicts legitimately"
    leaves = "all leakage of the model itself; combine it with content_gated"

    table: Tensor

    def __init__(
        self,
        tokens: Count,
        features: Count,
        *,
        on: Annotated[bool, Field(description="add the means to predictions; false: leave them out")] = True,
    ) -> None:
        super().__init__()
        self.on = on
        self.register_buffer("table", torch.zeros(tokens, features))

    def fit(self, some: Tensor, others: Tensor) -> None:
        """Shrink the means by how far two halves of the recordings agree: the rest is chance."""
        one, two = (tokens.mean(0) - tokens.mean((0, 1)) for tokens in (some, others))
        means = (one + two) / 2
        share = ((one * two).mean(0) / means.pow(2).mean(0).clamp(min=1e-12)).clamp(0, 1)
        self.table.copy_(share * means)

    def content(self, tokens: Tensor) -> Tensor:
        return tokens - self.table

    def restore(self, prediction: Tensor) -> Tensor:
        return prediction + self.table if self.on else prediction
