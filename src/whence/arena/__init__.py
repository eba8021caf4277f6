"""Compare positional encodings in distribution and out of distribution."""

from typing import TYPE_CHECKING

from whence.lazy import lazily

if TYPE_CHECKING:
    from whence.arena.api import load

__all__ = ["load"]

__getattr__, __dir__ = lazily(__name__, {"load": "whence.arena.api"})
