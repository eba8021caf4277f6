"""No positional encoding at all: what the causal mask alone tells."""

from __future__ import annotations

from whence.encodings.base import Encoding, Shift


class NoPE(Encoding):
    """Nothing: only a causal mask, if there is one, breaks the symmetry between positions."""

    extrapolation = "nothing to extrapolate; attention spreads over more keys"
    reference = "Haviv 2022; Kazemnejad 2023"
    admits_transforms = False

    def __init__(self) -> None:
        super().__init__()

    @property
    def shift(self) -> Shift:
        return "ignored"
