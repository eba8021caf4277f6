"""Files that survive a kill, notice a changed byte, and name what they belong to.

Three forms, none of which can execute code when read:
- *sealed*: a JSON document with its own checksum, replaced atomically;
- *chained*: JSON lines, each carrying a checksum over everything before it, appended;
- *addressed*: any bytes, whose checksum is part of the file's name, written once.

Sealed and chained files hold their own address, by default `folder/name`: the files of two runs cannot be exchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors

from whence.parsing import ParseError, check_depth, parse_json
from whence.store import disk
from whence.store.disk import CorruptFileError

FORMAT = 4
"""Of everything that is stored. Raised when the layout changes or the same configuration gives another result: runs of
another format are other runs, and documents of another format are refused."""
TENSORS = ".safetensors"
BUFFERED_BYTES = 8192
"""Of a chain, before it is written"""
Mark = tuple[int, str]
"""A place in a chain: bytes, and the last link"""


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


def stored_digest(path: Path) -> str:
    """Of a file of a store. `CorruptFileError` if it is too long: holes cost nothing, their checksum hours."""
    tensors = path.suffix == TENSORS
    with disk.open_file(path, disk.UNLIMITED if tensors else disk.LARGEST_CHAIN) as file:
        if tensors:
            check_length(path)
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_length(path: Path) -> None:
    """Of a file of tensors, against its own header."""
    try:
        safetensors.safe_open(path, "np")
    except safetensors.SafetensorError as error:
        raise CorruptFileError(path, f"not a file of tensors ({error})") from None


def address(path: Path, owner: str | None = None) -> str:
    """owner: what the file belongs to, where that is not its folder."""
    return f"{path.parent.name if owner is None else owner}/{path.name}"


def check_nesting(raw: bytes, path: Path) -> None:
    try:
        check_depth(raw)
    except ParseError as error:
        raise CorruptFileError(path, str(error)) from None


# --- sealed


def _seal(body: Any, of: str) -> bytes:
    text = f'"body":{canonical(body)},"format":{FORMAT},"of":{canonical(of)}'
    return f'{{{text},"sha256":"{digest(text)}"}}\n'.encode()


def write_sealed(path: Path, body: Any, *, owner: str | None = None, durable: bool = True) -> None:
    disk.write_atomically(path, _seal(body, address(path, owner)), durable=durable)


def read_sealed(path: Path, owner: str | None = None) -> Any:
    """The body; `CorruptFileError` unless every byte is the one that was written, here and in this format."""
    raw = disk.read(path)
    text, _, checksum = raw.rpartition(b',"sha256":')
    intact = checksum == f'"{digest(text[1:])}"}}\n'.encode()
    check_nesting(raw, path)
    try:
        document = parse_json(raw)
        body, format, of = document["body"], document.get("format", "none"), document.get("of")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorruptFileError(path, "checksum does not match") from None
    if format == "none" or (intact and format != FORMAT):
        raise FormatError(path, format)
    if not intact:
        raise CorruptFileError(path, "checksum does not match")
    if of != address(path, owner):
        raise CorruptFileError(path, f"it is the file of {str(of)[:80]!r}")
    return body


# --- chained


def chain_start(path: Path) -> str:
    """What the first link continues: the chains of two runs, or of two files of a run, have nothing in common."""
    return digest(canonical([FORMAT, address(path)]))[:16]


def _line(previous: str, record: Any) -> tuple[bytes, str]:
    link = digest(previous + canonical(record))[:16]
    return (canonical({"chain": link, "record": record}) + "\n").encode(), link


class ChainWriter:
    """Appends records. `sync()` returns a mark to come back to."""

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        self.path = path
        self._size, self._last = mark or (0, chain_start(path))
        self._handle = disk.open_to_append(path, self._size)
        self._buffer = b""

    def append(self, record: Any) -> None:
        line, self._last = _line(self._last, record)
        self._buffer += line
        self._size += len(line)
        if len(self._buffer) >= BUFFERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        data, self._buffer = self._buffer, b""
        with disk.naming(self.path):
            disk.write(self._handle, data)

    def sync(self) -> Mark:
        self._flush()
        with disk.naming(self.path):
            disk.sync(self._handle)
        return self._size, self._last

    def close(self) -> None:
        """Without what was appended since the last `sync`, if it has not been written yet."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def read_chained(path: Path, upto: int | None = None) -> tuple[list[Any], Mark, bool]:
    """The intact records, the mark after them, and whether a torn last line follows (the writer was killed).

    `CorruptFileError` if a complete line does not continue the chain.
    """
    raw = disk.read(path, disk.LARGEST_CHAIN) if disk.kind_of(path) else b""
    if upto is not None:
        if len(raw) < upto:
            raise CorruptFileError(path, f"shorter than the {upto} bytes that a checkpoint relies on")
        raw = raw[:upto]
    check_nesting(raw[: raw.rfind(b"\n") + 1], path)
    records: list[Any] = []
    size, last = 0, chain_start(path)
    *lines, tail = raw.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_json(line)["record"]
            expected, link = _line(last, record)
        except (ValueError, KeyError, TypeError):
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
    if path.stem.rsplit("-", 1)[-1] != stored_digest(path)[:16]:
        raise CorruptFileError(path, "checksum does not match its name")
