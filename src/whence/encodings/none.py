"""No positional encoding: position information comes from the causal mask alone."""

from __future__ import annotations

from whence.encodings.base import Encoding, Shift


class NoPE(Encoding):
    """No encoding. Only a causal mask, if there is one, breaks the symmetry between positions."""

    extrapolation = "nothing to extrapolate; attention spreads over more keys"
    reference = "Haviv et al., 2022; Kazemnejad et al., 2023"
    admits_transforms = False

    def __init__(self) -> None:
        super().__init__()

    @property
    def shift(self) -> Shift:
        return "ignored"
