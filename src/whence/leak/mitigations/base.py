"""What a mitigation may change in a masked model. It overrides only the hooks it uses.

check(replacement, temporal)      refuses models that would undo it
fit(some, others)                 looks at training examples once, before training
content(tokens)                   what the model is shown; `restore(prediction)` undoes it at the end
encoding(vector, masked, axis)    what is added to the embedded tokens as their position
order(x)                          in which order the mixer reads the tokens
embed(x, visible)                 what else embedded tokens are told
writes(visible, layer)            which tokens may write, and how strongly; None: all
penalty(step)                     what is added to the loss
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from whence.encodings.base import Encoding
from whence.registry import Variant


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
    """Something that is meant to keep position out of the predictions of masked tokens."""

    stops: ClassVar[str]
    """What it can stop, in a few words."""
    leaves: ClassVar[str]
    """What it cannot."""

    def check(self, replacement: str, temporal: Encoding) -> None:
        """Raise ValueError for a model that would undo the mitigation."""

    def fit(self, some: Tensor, others: Tensor) -> None:
        """Training examples (examples, tokens, features), of two halves of the recordings."""

    def content(self, tokens: Tensor) -> Tensor:
        return tokens

    def restore(self, prediction: Tensor) -> Tensor:
        return prediction

    def encoding(self, vector: Tensor, masked: Tensor, axis: str) -> Tensor:
        """vector: (rows, tokens, d_model) of one axis, "time" or "channel". A mitigation changes "time" alone: without
        its channel, a masked token could not be predicted.
        """
        return vector

    def order(self, x: Tensor) -> Tensor | None:
        """(rows, tokens): the place in x of the token that is read first, second, …"""
        return None

    def embed(self, x: Tensor, visible: Tensor) -> Tensor:
        return x

    def writes(self, visible: Tensor, layer: int) -> Tensor | None:
        return None

    def penalty(self, step: PenaltyInput) -> Tensor | None:
        return None
