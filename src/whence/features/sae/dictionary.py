"""What every evaluation needs of a trained autoencoder, whoever trained it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from whence.errors import UserError


class Shape(NamedTuple):
    """Of a dictionary."""

    d_in: int
    """Numbers per state"""
    d_sae: int
    """Features"""
    context_size: int
    """Positions that are trained on"""


class Dictionary(Protocol):
    """Positions are where a state stands in its sequence, counted from 0, special tokens included."""

    d_in: int
    d_sae: int
    context_size: int

    def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
        """(n, d_sae), not negative, of (n, d_in) states at (n,) positions; mask_off: without masks over positions."""
        ...

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        """(n, d_in)"""
        ...

    @property
    def directions(self) -> Tensor:
        """(d_sae, d_in): what one unit of each feature adds to a state."""
        ...


def check_fits(dictionary: Dictionary, d_in: int, positions: int = 0, name: str = "it") -> None:
    """Whether it is of such activations. positions: of the texts, where they must be among those trained on."""
    if dictionary.d_in != d_in:
        raise UserError(
            f"dictionary: {name} is of states of {dictionary.d_in} numbers, and these have {d_in}. Allowed: "
            "activations of the model and the layer that it was trained on."
        )
    if dictionary.context_size < positions:
        raise UserError(
            f"dictionary: {name} was trained on {dictionary.context_size} positions, and the text has {positions}."
        )
