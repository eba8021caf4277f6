"""Data that are computed part by part, each part addressed by its content.

<folder>/config.json                        sealed     what was requested, and the names of the parts
         <part>-<checksum>.safetensors      addressed  one part, which names the data that it belongs to
         parts.json                         sealed     the files of all parts, once they are there

Files that were changed, exchanged or taken from other data are refused. An interrupted computation has no parts.json,
and resumes with the parts that are stored.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue
from torch import Tensor

from whence.config import Config
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import addressed_name, canonical, check_addressed, digest, read_sealed, write_sealed
from whence.store.records import FileName, parse_as
from whence.store.runs import Store
from whence.store.tensors import all_tensors, open_tensors, tensor_bytes

CONFIG, PARTS = "config.json", "parts.json"
PART = r"[a-z]+(?:-\d+)?"
PART_FILE = re.compile(rf"({PART})-[0-9a-f]{{16}}\.safetensors")
PartName = Annotated[str, Field(pattern=f"^{PART}$", max_length=64)]
ANY_FOLDER = ""
"""The user chooses the name of the folder, which is no part of the identity of the data"""


class DataConfig(Config):
    """config.json"""

    request: dict[str, JsonValue]
    parts: tuple[PartName, ...] = Field(min_length=1)


class PartList(Config):
    """parts.json"""

    files: dict[PartName, FileName]


@dataclass(frozen=True)
class DataFolder:
    path: Path

    @classmethod
    def begin(cls, path: Path, request: dict[str, JsonValue], parts: Sequence[str]) -> DataFolder:
        config = DataConfig(request=request, parts=tuple(parts))
        disk.make_directory(path)
        write_sealed(path / CONFIG, config.model_dump(mode="json"), owner=ANY_FOLDER)
        return cls(path)

    @cached_property
    def config(self) -> DataConfig:
        """The configuration; `FileNotFoundError` if there is none, `CorruptFileError` if it is damaged."""
        path = self.path / CONFIG
        return parse_as(DataConfig, read_sealed(path, ANY_FOLDER), path)

    @cached_property
    def id(self) -> str:
        """A checksum of the configuration."""
        return digest(canonical(self.config.model_dump(mode="json")))[:16]

    @property
    def checksum(self) -> str:
        """A checksum of the request and of all parts; `FileNotFoundError` while parts are missing."""
        return digest(canonical([self.id, self.files]))[:16]

    @cached_property
    def files(self) -> dict[str, str]:
        """Names of files by part; `FileNotFoundError` while parts are missing."""
        path = self.path / PARTS
        files = parse_as(PartList, read_sealed(path, self.id), path).files
        if files.keys() != set(self.config.parts):
            raise CorruptFileError(path, "does not list the parts that were requested")
        return files

    @property
    def complete(self) -> bool:
        return bool(disk.kind_of(self.path / PARTS))

    def missing(self) -> list[str]:
        there = self._there()
        return [part for part in self.config.parts if part not in there]

    def write(self, part: str, tensors: Mapping[str, Tensor]) -> None:
        data = tensor_bytes(tensors, self._owner(part))
        disk.write_atomically(self.path / addressed_name(part, data, ".safetensors"), data)

    def finish(self) -> None:
        """List the files of all parts, once none is missing; other files are ignored from then on."""
        there = self._there()
        files = {part: there[part].name for part in self.config.parts}
        if not (self.complete and self.files == files):
            write_sealed(self.path / PARTS, PartList(files=files).model_dump(mode="json"), owner=self.id)

    def read(self, part: str) -> dict[str, Tensor]:
        """The memory-mapped tensors of a part; `CorruptFileError` if it is damaged."""
        name = self.files.get(part) if self.complete else (path := self._there().get(part)) and path.name
        if name is None:
            raise CorruptFileError(self.path, f"has no part {part!r}")
        path = self.path / name
        _check_once(path, _stamp(path))
        return self._open(path, part)

    def check(self) -> None:
        """Raise `CorruptFileError` or `OSError` if a part is damaged or missing."""
        for part in self.config.parts:
            self.read(part)

    def problems(self) -> Iterator[tuple[str, str]]:
        """(file, problem) for every damaged, missing or unlisted file."""
        if disk.is_directory(self.path) and not disk.names(self.path):
            return  # the process was killed before it wrote anything
        try:
            _ = self.id
        except (OSError, CorruptFileError) as damage:
            yield CONFIG, _reason(damage)
            return
        listed = None
        try:
            listed = set(self.files.values())
        except (OSError, CorruptFileError) as damage:
            if self.complete or not self.missing():
                yield PARTS, _reason(damage)
        files = {path.name: part for path, part in self._part_files()}
        yield from ((name, "missing") for name in sorted((listed or set()) - files.keys()))
        for name, part in files.items():
            if listed is not None and name not in listed:
                yield name, f"not listed in {PARTS}"
                continue
            try:
                check_addressed(self.path / name)
                self._open(self.path / name, part)
            except (OSError, CorruptFileError) as damage:
                yield name, _reason(damage)

    def clear(self, store: Store) -> list[str]:
        """Set aside damaged files, so that they can be computed again; return a line for each file."""
        for path in disk.entries(self.path):
            if path.name.startswith(disk.TEMPORARY):
                disk.remove_tree(path)
        lines: list[str] = []
        for name, reason in list(self.problems()):
            path = self.path / name
            moved = f" (moved to {store.set_aside(path)})" if disk.kind_of(path) else ""
            lines.append(f"{name}: {reason}{moved}")
        return lines

    def _there(self) -> dict[str, Path]:
        return {part: path for path, part in self._part_files()}

    def _part_files(self) -> list[tuple[Path, str]]:
        matches = ((path, PART_FILE.fullmatch(path.name)) for path in disk.entries(self.path))
        return [(path, match[1]) for path, match in matches if match]

    def _open(self, path: Path, part: str) -> dict[str, Tensor]:
        return all_tensors(open_tensors(path, self._owner(part))[0])

    def _owner(self, part: str) -> str:
        return f"{self.id}/{part}"


@functools.lru_cache(maxsize=2**16)
def _check_once(path: Path, stamp: tuple[int, ...]) -> None:
    """A process opens the same parts many times. Parts are checked again when they change."""
    check_addressed(path)


def _stamp(path: Path) -> tuple[int, ...]:
    status = os.lstat(path)
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _reason(damage: OSError | CorruptFileError) -> str:
    if isinstance(damage, FileNotFoundError):
        return "missing"
    return damage.reason if isinstance(damage, CorruptFileError) else disk.reason_of(damage)
