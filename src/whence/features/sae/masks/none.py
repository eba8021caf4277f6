"""No mask."""

from __future__ import annotations

from torch import Tensor

from whence.features.sae.masks.base import Mask


class NoMask(Mask):
    """Every feature may speak everywhere."""

    def __init__(self, context: int, size: int) -> None:
        super().__init__(context, size)

    def table(self, progress: float) -> Tensor | None:
        return None
