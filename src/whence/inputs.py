"""Input files of the user: images, arrays, texts, models. They may come from a stranger.

Only regular files of bounded size, or links to them, are opened, never pipes or devices. Stored files, which may not be
links, are opened by `whence.store.disk`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from whence.errors import UserError
from whence.formatting import as_size
from whence.parsing import ParseError, check_depth, parse_json

if TYPE_CHECKING:
    from pydantic import JsonValue

LARGEST_FILE, LARGEST_TEXT, LARGEST_DOCUMENT = 2**42, 2**28, 2**23
"""Bytes"""


def open_input(path: Path | str, field: str, largest: int) -> BufferedReader:
    """Open a file for reading; `UserError` if that is impossible. field: of the configuration, for the error."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened, which can have effects on a device
            raise UserError(f"{field}: {str(path)!r} is not a regular file.")
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise UserError(f"{field}: {str(path)!r} cannot be read ({error.strerror}).") from None
    except ValueError:  # a name that no file can have
        raise UserError(f"{field}: {str(path)!r} is not the name of a file.") from None
    file = os.fdopen(handle, "rb")
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
        file.close()
        raise _too_large(path, field, largest)
    return file


def read_input(path: Path | str, field: str, largest: int) -> bytes:
    with open_input(path, field, largest) as file:
        size = min(largest, max(os.fstat(file.fileno()).st_size, 2**16))  # some files of the system have size 0
        data = file.read(size + 1)
    if len(data) > size:  # it grows while it is read
        raise _too_large(path, field, size)
    return data


def file_digest(path: Path | str, field: str) -> str:
    """SHA-256 of a file."""
    with open_input(path, field, LARGEST_FILE) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path | str, field: str = "text") -> str:
    """A text in UTF-8, with newlines in the form of this machine."""
    try:
        text = read_input(path, field, LARGEST_TEXT).decode()
    except UnicodeDecodeError:
        raise UserError(f"{field}: {str(path)!r} is not text in UTF-8.") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_document(path: Path, field: str) -> dict[str, JsonValue]:
    """A JSON object of bounded size and depth."""
    raw = read_input(path, field, LARGEST_DOCUMENT)
    try:
        check_depth(raw)
        document = parse_json(raw, constant=float)  # configurations of models may hold infinity
    except ParseError as error:
        raise UserError(f"{field}: {str(path)!r} cannot be read ({error}).") from None
    except ValueError:
        raise UserError(f"{field}: {str(path)!r} is not valid JSON.") from None
    if not isinstance(document, dict):
        raise UserError(f"{field}: expected a JSON object in {str(path)!r}, got a {type(document).__name__}.")
    return document


def walk(document: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """Every value of a document, with the name of its field."""
    left = [("", document)]
    while left:
        name, value = left.pop()
        yield name, value
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += [(name, inner) for inner in value]


def _too_large(path: Path | str, field: str, largest: int) -> UserError:
    return UserError(f"{field}: {str(path)!r} is too large. Expected at most {as_size(largest)}.")
