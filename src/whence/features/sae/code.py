"""Active features of some states."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from whence.kernels.sparse_code import ByFeature, decode


@dataclass(frozen=True)
class Code:
    """All features of every state, or k of them."""

    values: Tensor
    """(n, d_sae) or (n, k)"""
    raw: Tensor
    """The values before the mask."""
    named: ByFeature | None
    """Whose values they are, (n, k) indices; None: all features'"""

    @property
    def indices(self) -> Tensor | None:
        return None if self.named is None else self.named.indices

    def times(self, rows: Tensor, values: Tensor | None = None) -> Tensor:
        """The code, or other values in its place, times a matrix with a row for every feature (d_sae, m): (n, m)"""
        values = self.values if values is None else values
        if self.named is None:
            return values @ rows
        return decode(values, self.named.indices, rows, by_feature=self.named)

    def dense(self, d_sae: int) -> Tensor:
        """(n, d_sae)"""
        if self.indices is None:
            return self.values
        return self.values.new_zeros(len(self.values), d_sae).scatter(1, self.indices, self.values)
