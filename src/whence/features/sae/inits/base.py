"""What a start is: the first directions of a decoder, which the encoder starts from as well."""

from __future__ import annotations

from torch import Tensor

from whence.registry import Variant


class Start(Variant):
    """Drawn from torch's ambient stream, which whoever initialises has seeded."""

    def directions(self, size: int, width: int) -> Tensor:
        """(size, width), rows of length 1."""
        raise NotImplementedError
