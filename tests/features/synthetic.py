"""States and dictionaries of which everything is known."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.features.activations.sequences import SequenceActivations, SequenceNotes
from whence.features.activations.store import flags_of


class Reader:
    """Its features are the positive parts of the dimensions; with masks, each only at positions of one parity."""

    def __init__(self, d_in: int, context_size: int = 64, masked: bool = False) -> None:
        self.d_in = self.d_sae = d_in
        self.context_size, self.masked = context_size, masked

    def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
        even = (positions % 2 == 0)[:, None]
        return activations.relu() * even if self.masked and not mask_off else activations.relu()

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        return codes

    @property
    def directions(self) -> Tensor:
        return torch.eye(self.d_sae)


def sequences(
    lengths: Tensor,
    d_in: int,
    about: dict[str, Tensor],
    notes: SequenceNotes,
    ids: Tensor | None = None,
    bare: bool = False,
) -> SequenceActivations:
    """Noise of small whole numbers, exact in bfloat16 and in sums; a special token at both ends, unless bare."""
    total = int(lengths.sum())
    random = torch.Generator().manual_seed(7)
    activations = torch.randint(-3, 4, (total, d_in), generator=random).bfloat16()
    ends: tuple[list[int], list[int]] = ([], []) if bare else ([0], [0])
    flags = torch.cat([flags_of(length, ends) for length in lengths.tolist()])
    ids = torch.randint(1000, (total,), generator=random) if ids is None else ids
    return SequenceActivations(activations, ids, flags, lengths, int(lengths.max()), about, notes)
