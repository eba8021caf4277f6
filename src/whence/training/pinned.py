"""A run over a user's files means the bytes that were there, under one spelling of their name."""

from __future__ import annotations

import os.path

from whence.registry import Choice


def pinned(choice: Choice) -> Choice:
    """With the checksum of its files, where a variant has such an option and it is still open."""
    if choice.options().get("checksum") != "":
        return choice
    named = choice.model_copy(update={"path": os.path.normpath(choice.options()["path"] or "?")})
    return named.model_copy(update={"checksum": named.build().checksum_now()})
