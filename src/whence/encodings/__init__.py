"""Positional encodings: one file each. `whence.encodings.RoPE`, or `ENCODINGS.choose("rope:scaling=yarn")`."""

from __future__ import annotations

from typing import Annotated

from whence.encodings.base import Encoding
from whence.registry import Choice, Registry

ENCODINGS: Registry[Encoding] = Registry(__name__, Encoding)
EncodingChoice = Annotated[Choice[Encoding], ENCODINGS]


def __getattr__(name: str) -> type[Encoding]:
    return ENCODINGS.attribute(name)
