"""Transforms of positions: one file each. `TRANSFORMS.choose("randomized:span=512")`.

A transform edits the positions before any encoding reads them. It is applied once per batch, to the one tensor that
queries and keys both read, so that they never disagree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from whence.registry import Choice, Registry, Variant, construction


class Transform(Variant, ABC):
    """An edit of the positions, (batch, length) or (batch, length, axes), for any encoding that reads them.

    A subclass implements `__call__(positions, training=…, generator=…)`.

    Example:
        >>> shifted = whence.encodings.transforms.Shifted(reach=10)
        >>> shifted(torch.arange(4)[None], training=False)
        tensor([[0, 1, 2, 3]])
    """

    reference: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    """Further options that the conformance suite tests, as written on the command line."""

    @abstractmethod
    def __call__(self, positions: Tensor, *, training: bool, generator: torch.Generator | None = None) -> Tensor:
        """The edited positions, of the same shape. Whatever is drawn is drawn once per row of `positions`."""

    @classmethod
    def usage(cls) -> list[str]:
        return [
            f">>> transform = {construction(cls, 'whence.encodings.transforms')}",
            ">>> transform(torch.arange(6)[None], training=True).shape  # (batch, length)",
            "torch.Size([1, 6])",
        ]

    def lengths(self, train_length: int, max_length: int) -> tuple[int, int]:
        """How far positions reach after the edit, in training and at all: what a table must hold."""
        return train_length, max_length


def roomy(positions: Tensor) -> Tensor:
    """Positions in a number format with room for large ones: bfloat16 merges neighbours beyond 256, uint8 wraps."""
    if not positions.is_floating_point():
        return positions.long()
    return positions.float() if positions.itemsize < 4 else positions


def drawing_device(positions: Tensor, generator: torch.Generator | None) -> torch.device:
    """A generator draws only on its own device."""
    return positions.device if generator is None else generator.device


TRANSFORMS: Registry[Transform] = Registry(__name__, Transform)
TransformChoice = Annotated[Choice[Transform], TRANSFORMS]


def __getattr__(name: str) -> type[Transform]:
    return TRANSFORMS.attribute(name)


def __dir__() -> list[str]:
    return ["TRANSFORMS", "Transform", *TRANSFORMS.public_names()]
