"""A run over a user's files means the bytes that were there, not their names."""

from __future__ import annotations

from whence.registry import Choice


def pinned(choice: Choice) -> Choice:
    """With the checksum of its files, where a variant has such an option and it is still open."""
    if choice.options().get("checksum") != "":
        return choice
    return choice.model_copy(update={"checksum": choice.build().checksum_now()})
