"""One mean for all."""

from __future__ import annotations

from torch import Tensor

from whence.features.sae.centering.base import Centre


class Mean(Centre):
    """The mean of all states, wherever they stand."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__(context, width)

    def fit(self, sums: Tensor, counts: Tensor) -> None:
        self.table.copy_((sums.sum(0) / counts.sum()).expand_as(self.table))
