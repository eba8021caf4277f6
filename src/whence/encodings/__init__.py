"""Positional encodings: one file each. `whence.encodings.RoPE`, or `ENCODINGS.choose("rope:scaling=yarn")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.encodings.base import Encoding
from whence.registry import Choice, Registry

ENCODINGS: Registry[Encoding] = Registry(__name__, Encoding)

if TYPE_CHECKING:
    EncodingChoice = Choice


def __getattr__(name: str) -> Any:
    if name == "EncodingChoice":
        return ENCODINGS.union()
    found = None if name.startswith("_") else ENCODINGS.by_class_name(name)
    if found is None:
        raise AttributeError(f"whence.encodings has no {name!r}; it has {', '.join(e.__name__ for e in ENCODINGS)}")
    return found
