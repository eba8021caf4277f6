"""A run over a user's files means the bytes that were there, under one spelling of their name."""

from __future__ import annotations

import os.path
from typing import Protocol, runtime_checkable

from whence.registry import Choice, T


@runtime_checkable
class FileData(Protocol):
    """A variant with the options `path` and `checksum`."""

    def checksum_now(self) -> str: ...


def pinned(choice: Choice[T]) -> Choice[T]:
    """With the checksum of its files, where a variant has such an option and it is still open."""
    if choice.options().get("checksum") != "":
        return choice
    named = choice.model_copy(update={"path": os.path.normpath(choice.options()["path"] or "?")})
    data = named.build()
    assert isinstance(data, FileData)
    return named.model_copy(update={"checksum": data.checksum_now()})
