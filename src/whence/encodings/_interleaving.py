"""One permutation for putting tokens between others and for taking them out again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Interleaving:
    """Where `count` inserted tokens stand among `length` others, row by row.

    What goes in as the j-th inserted token comes out as the j-th: both directions read the same order.
    """

    order: Tensor
    """(rows or 1, length + count): which of [tokens, inserted] stands at each place"""
    count: int
    at: Tensor
    """(rows or 1, count): where each inserted token stands, as a fractional index of the others"""

    @classmethod
    def of(cls, at: Tensor, length: int, valid: Tensor | None = None) -> Interleaving:
        """at: (rows or 1, count), fractional indices among the valid tokens; −0.5 is before the first of them.

        At equal indices a token comes first. Padding stays outside: no inserted token falls behind it.
        """
        if valid is None:
            keys = torch.arange(length, device=at.device, dtype=torch.float64).expand(len(at), -1)
        else:
            rank = valid.double().cumsum(1) - 1
            behind = ~valid & (rank == valid.sum(1, keepdim=True) - 1)  # after the last that counts
            keys = torch.where(behind, float(length), rank)
            at = at.expand(len(valid), -1)
        order = torch.cat([keys, at.detach().double()], 1).argsort(dim=1, stable=True)
        return cls(order, at.shape[1], at)

    @property
    def length(self) -> int:
        return self.order.shape[1] - self.count

    def merge(self, tokens: Tensor, inserted: Tensor) -> Tensor:
        """(rows, length, …) and (rows, count, …) → (rows, length + count, …)."""
        rows = max(len(tokens), len(inserted), len(self.order))
        both = torch.cat([part.expand(rows, *part.shape[1:]) for part in (tokens, inserted)], 1)
        return _take(both, self.order.expand(rows, -1))

    def tokens(self, merged: Tensor) -> Tensor:
        """What stands where tokens were put, in their order."""
        return self._split(merged)[:, : self.length]

    def inserted(self, merged: Tensor) -> Tensor:
        """What stands where inserted tokens were put, in their order."""
        return self._split(merged)[:, self.length :]

    def _split(self, merged: Tensor) -> Tensor:
        return _take(merged, self.order.argsort(1).expand(len(merged), -1))

    def nearest(self, values: Tensor) -> Tensor:
        """Values of the tokens, (rows or 1, length, …), read at the inserted ones: those of the nearest token."""
        index = self.at.detach().round().clamp(0, self.length - 1).long()
        rows = max(len(values), len(index))
        return _take(values.expand(rows, *values.shape[1:]), index.expand(rows, -1))

    def between(self, values: Tensor, valid: Tensor | None = None) -> Tensor:
        """Values of the tokens, (rows or 1, length, …), read at the inserted ones: linear between neighbours.

        A row without valid tokens has none to read; its first, padding, stands for them.
        """
        values = values if values.is_floating_point() else values.double()
        last = torch.tensor(self.length - 1.0) if valid is None else (valid.sum(1, keepdim=True) - 1.0).clamp(min=0)
        at = self.at.clamp(min=0).minimum(last.to(self.at))
        if valid is not None:  # padding is moved behind, where nothing reads it
            values = _take(values.expand(len(valid), *values.shape[1:]), (~valid).int().argsort(dim=1, stable=True))
        rows = max(len(values), len(at))
        values, at = values.expand(rows, *values.shape[1:]), at.expand(rows, -1)
        below = at.detach().floor()
        low, high = (_take(values, index.long()) for index in (below, at.detach().ceil()))
        part = (at - below).to(values).view(*at.shape, *[1] * (values.ndim - 2))
        return low + (high - low) * part


def _take(values: Tensor, index: Tensor) -> Tensor:
    shape = (*index.shape, *[1] * (values.ndim - 2))
    return values.gather(1, index.view(shape).expand(*index.shape, *values.shape[2:]))
