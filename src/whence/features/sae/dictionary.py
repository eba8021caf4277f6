"""What every evaluation needs of a trained autoencoder, whoever trained it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Dictionary(Protocol):
    """Positions are where a state stands in its sequence, counted from 0, special tokens included."""

    width: int
    """Numbers per state."""
    size: int
    """Features."""
    context: int
    """Positions that were trained on."""

    def codes(self, states: Tensor, positions: Tensor, lifted: bool = False) -> Tensor:
        """(n, size), not negative, of (n, width) states at (n,) positions; lifted: without masks over positions."""
        ...

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        """(n, width)"""
        ...

    @property
    def directions(self) -> Tensor:
        """(size, width): what one unit of each feature adds to a state."""
        ...
