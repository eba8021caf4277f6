"""File formats that survive a kill, detect changed bytes and name their owner.

There are three forms, none of which can execute code when read:
- *sealed*: a JSON document with its own checksum, replaced atomically;
- *chained*: JSON lines, each carrying a checksum over everything before it, appended;
- *addressed*: any bytes, written once, with their checksum in the name of the file.

Sealed and chained files hold their own address, by default `folder/name`, so that exchanged files are detected.
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
"""The version of all stored files. It increases when the layout changes, or when the same configuration gives another
result. It is part of the id of a run, and documents of another format are refused."""
TENSORS = ".safetensors"
BUFFERED_BYTES = 8192
"""Bytes of a chain that are buffered before they are written"""
Mark = tuple[int, str]
"""A position in a chain: number of bytes, and the last link"""


class FormatError(CorruptFileError):
    """A stored file is intact, but of another format."""

    def __init__(self, path: Path, found: object) -> None:
        super().__init__(path, f"stored in format {found}; this version of whence reads format {FORMAT}")


def canonical(document: Any) -> str:
    """The canonical form of a JSON document, of which checksums and run ids are computed."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to one with dotted names."""
    leaves: dict[str, Any] = {}
    for key, item in document.items():
        leaves |= flat(document[key], f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return leaves


def digest(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def stored_digest(path: Path) -> str:
    """The checksum of a stored file. `CorruptFileError` if it is too long: a sparse file would take hours."""
    tensors = path.suffix == TENSORS
    with disk.open_file(path, disk.UNLIMITED if tensors else disk.LARGEST_CHAIN) as file:
        if tensors:
            check_length(path)
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_length(path: Path) -> None:
    """Check the length of a file of tensors against its header."""
    try:
        safetensors.safe_open(path, "np")
    except safetensors.SafetensorError as error:
        raise CorruptFileError(path, f"not a file of tensors ({error})") from None


def address(path: Path, owner: str | None = None) -> str:
    """The address of a file. owner: what it belongs to, if that is not its directory."""
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
    """The body; `CorruptFileError` if the checksum, the format or the address is wrong."""
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
        raise CorruptFileError(path, f"belongs to {str(of)[:80]!r}")
    return body


# --- chained


def chain_start(path: Path) -> str:
    """The link before the first record, which differs between all files of all runs."""
    return digest(canonical([FORMAT, address(path)]))[:16]


def _line(previous: str, record: Any) -> tuple[bytes, str]:
    link = digest(previous + canonical(record))[:16]
    return (canonical({"chain": link, "record": record}) + "\n").encode(), link


class ChainWriter:
    """Appends records. `sync()` returns a mark, from which a later writer can continue."""

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
        """Close the file. Records since the last `sync` may be lost."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def read_chained(path: Path, upto: int | None = None) -> tuple[list[Any], Mark, bool]:
    """The intact records, the mark after them, and whether an incomplete last line follows (after a kill).

    `CorruptFileError` if a complete line does not continue the chain.
    """
    raw = disk.read(path, disk.LARGEST_CHAIN) if disk.kind_of(path) else b""
    if upto is not None:
        if len(raw) < upto:
            raise CorruptFileError(path, f"shorter than the {upto} bytes that a checkpoint refers to")
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
            raise CorruptFileError(path, f"line {number} cannot be parsed") from None
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
