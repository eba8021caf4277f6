"""Transforms of positions: one file each. `TRANSFORMS.choose("randomized:span=512")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.encodings.transforms.base import Transform
from whence.registry import Choice, Registry

TRANSFORMS: Registry[Transform] = Registry(__name__, Transform)

if TYPE_CHECKING:
    TransformChoice = Choice


def __getattr__(name: str) -> Any:
    if name == "TransformChoice":
        return TRANSFORMS.union()
    found = None if name.startswith("_") else TRANSFORMS.by_class_name(name)
    if found is None:
        known = ", ".join(transform.__name__ for transform in TRANSFORMS)
        raise AttributeError(f"whence.encodings.transforms has no {name!r}; it has {known}")
    return found
