"""States and dictionaries of which everything is known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whence.features.activations.sequences import SequenceStates
from whence.features.activations.store import flags_of


class Reader:
    """Its features are the positive parts of the dimensions; with masks, each only at positions of one parity."""

    def __init__(self, width: int, context: int = 64, masked: bool = False) -> None:
        self.width = self.size = width
        self.context, self.masked = context, masked

    def codes(self, states: Tensor, positions: Tensor, lifted: bool = False) -> Tensor:
        even = (positions % 2 == 0)[:, None]
        return states.relu() * even if self.masked and not lifted else states.relu()

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        return codes

    @property
    def directions(self) -> Tensor:
        return torch.eye(self.size)


def sequences(
    lengths: Tensor,
    width: int,
    about: dict[str, Tensor],
    notes: dict[str, Any],
    ids: Tensor | None = None,
    bare: bool = False,
) -> SequenceStates:
    """Noise of small whole numbers, exact in bfloat16 and in sums; a special token at both ends, unless bare."""
    total = int(lengths.sum())
    random = torch.Generator().manual_seed(7)
    states = torch.randint(-3, 4, (total, width), generator=random).bfloat16()
    ends: tuple[list[int], list[int]] = ([], []) if bare else ([0], [0])
    flags = torch.cat([flags_of(length, ends) for length in lengths.tolist()])
    ids = torch.randint(1000, (total,), generator=random) if ids is None else ids
    return SequenceStates(states, ids, flags, lengths, int(lengths.max()), about, notes)
