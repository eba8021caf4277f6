"""Transforms of positions: one file each. `TRANSFORMS.choose("randomized:span=512")`."""

from __future__ import annotations

from typing import Annotated

from whence.encodings.transforms.base import Transform
from whence.registry import Choice, Registry

TRANSFORMS: Registry[Transform] = Registry(__name__, Transform)
TransformChoice = Annotated[Choice[Transform], TRANSFORMS]


def __getattr__(name: str) -> type[Transform]:
    return TRANSFORMS.attribute(name)
