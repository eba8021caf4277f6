"""What data are: states with their positions, some of them never trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from whence.registry import Variant

States = tuple[Tensor, Tensor]
"""(n, width) states, (n,) positions"""


def by_position(rows: Tensor, positions: Tensor, context: int) -> Tensor:
    """(context, m) double: sums of the rows (n, m) at each position."""
    where = (positions[:, None] == torch.arange(context, device=positions.device)).to(rows.dtype)
    return (where.mT @ rows).double()  # a product is many times faster than adding row by row


def sum_of_squares(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.double)) ** 2


class Data(Variant):
    """Positions run from 0 to context − 1."""

    held_out_name: ClassVar[str] = "these held-out texts"
    """Held-out data that all seeds share; empty where every seed draws its own."""

    width: int
    context: int
    ends: tuple[int, int]
    """The first and the last position that states stand at"""
    usual_size: int
    """Features of a dictionary, where nobody asks for another number"""
    usual_l0: int
    """Active features per state, the same way"""

    def draw(self, generator: torch.Generator, count: int) -> States:
        """Training states, at random."""
        raise NotImplementedError

    def everything(self) -> Iterator[States]:
        """Training states, part by part, for what is fitted rather than trained."""
        raise NotImplementedError

    def held_out(self, stream: int = 0) -> Iterator[States]:
        """States never trained on, part by part. Data that can be drawn are drawn anew for every `stream`."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises UserError, before any work, where there is nothing to draw from."""

    def truth(self) -> dict[str, Tensor]:
        """By kind, directions (features, width) that are known to be there; empty where nobody knows."""
        return {}
