"""What every evaluation needs of a trained autoencoder, whoever trained it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


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
