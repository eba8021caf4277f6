"""The interface that evaluations require of a trained autoencoder, from whence or from SAELens."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from whence.errors import UserError


class Shape(NamedTuple):
    """Sizes of a dictionary."""

    d_in: int
    """Dimensions of an activation"""
    d_sae: int
    """Number of features"""
    context_size: int
    """Positions in training"""


class Dictionary(Protocol):
    """Positions count tokens of the sequence from 0, with special tokens."""

    d_in: int
    d_sae: int
    context_size: int

    def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
        """Codes (n, d_sae), not negative, of activations (n, d_in) at positions (n,)."""
        ...

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        """(n, d_in)"""
        ...

    @property
    def directions(self) -> Tensor:
        """(d_sae, d_in): the contribution of one unit of each feature to an activation."""
        ...


def check_fits(dictionary: Dictionary, d_in: int, positions: int = 0, name: str = "it") -> None:
    """Raise UserError unless the dictionary fits the activations and, if given, the positions of the text."""
    if dictionary.d_in != d_in:
        raise UserError(
            f"dictionary: expected activations with d_in {dictionary.d_in} for {name}, got d_in {d_in}. Pass "
            "activations of the model and the layer that it was trained on."
        )
    if dictionary.context_size < positions:
        raise UserError(
            f"dictionary: expected at most {dictionary.context_size} positions, as in the training of {name}, got "
            f"{positions}. Pass shorter sequences."
        )
