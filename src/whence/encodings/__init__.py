"""Positional encodings: one file each. `whence.encodings.RoPE`, or `ENCODINGS.choose("rope:scaling=yarn")`."""

from __future__ import annotations

from typing import Annotated, Any

from whence.encodings.base import Encoding
from whence.registry import Choice, Registry

ENCODINGS: Registry[Encoding] = Registry(__name__, Encoding)
EncodingChoice = Annotated[Choice[Encoding], ENCODINGS]


def __getattr__(name: str) -> Any:
    if name == "transforms":  # imports this package, so it cannot be imported above
        import whence.encodings.transforms

        return whence.encodings.transforms
    return ENCODINGS.attribute(name)


def __dir__() -> list[str]:
    return ["ENCODINGS", "Encoding", "transforms", *ENCODINGS.public_names()]
