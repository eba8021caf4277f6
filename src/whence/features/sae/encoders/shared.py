"""The plain encoder."""

from __future__ import annotations

from whence.features.sae.encoders.base import Encoder


class Shared(Encoder):
    """The same weights at every position."""

    def __init__(self, width: int, size: int, context: int) -> None:
        super().__init__(width, size, context)
