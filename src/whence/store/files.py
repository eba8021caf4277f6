"""Files that survive a kill and notice a changed byte.

Three forms, none of which can execute code when read:
- *sealed*: a JSON document with its own checksum, replaced atomically;
- *chained*: JSON lines, each carrying a checksum over itself and everything before it, appended;
- *addressed*: any bytes, whose checksum is part of the file's name, written once.

Writing never follows a symbolic link: a store that came from elsewhere cannot point at a user's files.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

START = "0" * 16
TEMPORARY = ".tmp-"
LARGEST_DOCUMENT = 256 * 2**20
FORMAT = 3
"""Of everything that is stored. Raised when the layout changes or the same configuration gives another result: runs of
another format are other runs, and documents of another format are refused."""


class CorruptFileError(Exception):
    """A stored file is not what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class FormatError(CorruptFileError):
    """A stored file is whole, and of another format."""

    def __init__(self, path: Path, found: object) -> None:
        super().__init__(path, f"stored in format {found}; this version of whence reads format {FORMAT}")


def canonical(document: Any) -> str:
    """The one spelling of a JSON document; checksums and run ids are taken over it."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested groups as one, by dotted name."""
    leaves: dict[str, Any] = {}
    for key, item in document.items():
        leaves |= flat(document[key], f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return leaves


def digest(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Either the old file or the whole new one is there, whenever the process dies."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def read_document(path: Path) -> bytes:
    """A file that must fit in memory; anything absurdly large is refused before it is read."""
    if path.stat().st_size > LARGEST_DOCUMENT:
        raise CorruptFileError(path, f"larger than {LARGEST_DOCUMENT} bytes")
    return path.read_bytes()


# --- sealed


def _seal(body: Any, format: int = FORMAT) -> bytes:
    text = f'"body":{canonical(body)},"format":{format}'
    return f'{{{text},"sha256":"{digest(text)}"}}\n'.encode()


def write_sealed(path: Path, body: Any, *, durable: bool = True) -> None:
    write_atomically(path, _seal(body), durable=durable)


def read_sealed(path: Path) -> Any:
    """The body; `CorruptFileError` unless every byte is the one that was written, in this format."""
    raw = read_document(path)
    try:
        document = json.loads(raw)
        body, format = document["body"], document.get("format", "none")
        intact = format == "none" or raw == _seal(body, format)  # the seal fixes spelling and white space as well
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        intact, body, format = False, None, None
    if not intact:
        raise CorruptFileError(path, "checksum does not match")
    if format != FORMAT:
        raise FormatError(path, format)
    return body


# --- chained


def _line(previous: str, record: Any) -> tuple[bytes, str]:
    link = digest(previous + canonical(record))[:16]
    return (canonical({"chain": link, "record": record}) + "\n").encode(), link


class ChainWriter:
    """Appends records. `mark()` is a place to come back to: (bytes, last link)."""

    def __init__(self, path: Path, mark: tuple[int, str] = (0, START)) -> None:
        self.path = path
        self._size, self._last = mark
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        self._file: IO[bytes] = os.fdopen(handle, "r+b")
        self._file.truncate(self._size)
        self._file.seek(self._size)

    def append(self, record: Any) -> None:
        line, self._last = _line(self._last, record)
        self._file.write(line)
        self._size += len(line)

    def sync(self) -> tuple[int, str]:
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._size, self._last

    def close(self) -> None:
        if not self._file.closed:
            self.sync()
            self._file.close()


def read_chained(path: Path, upto: int | None = None) -> tuple[list[Any], tuple[int, str], bool]:
    """The intact records, the mark after them, and whether a torn last line follows (the writer was killed).

    `CorruptFileError` if a complete line does not continue the chain.
    """
    raw = read_document(path) if path.exists() else b""
    if upto is not None:
        if len(raw) < upto:
            raise CorruptFileError(path, f"shorter than the {upto} bytes that a checkpoint relies on")
        raw = raw[:upto]
    records: list[Any] = []
    size, last = 0, START
    *lines, tail = raw.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)["record"]
            expected, link = _line(last, record)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CorruptFileError(path, f"line {number} is not readable") from None
        if line + b"\n" != expected:
            raise CorruptFileError(path, f"line {number} does not continue the chain")
        records.append(record)
        size, last = size + len(expected), link
    return records, (size, last), bool(tail)


# --- addressed


def addressed_name(stem: str, data: bytes, suffix: str) -> str:
    return f"{stem}-{digest(data)[:16]}{suffix}"


def check_addressed(path: Path) -> None:
    if path.stem.rsplit("-", 1)[-1] != file_digest(path)[:16]:
        raise CorruptFileError(path, "checksum does not match its name")
