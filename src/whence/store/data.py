"""Data that are computed part by part, each part addressed by its content.

<folder>/config.json                        sealed     what was requested
         <part>-<checksum>.safetensors      addressed  one part, which names the data that it belongs to
         parts.json                         sealed     the files of all parts, once they are there

Nothing that was changed, exchanged or taken from other data is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field
from torch import Tensor

from whence.config import Config
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import addressed_name, canonical, check_addressed, digest, read_sealed, write_sealed
from whence.store.records import FileName, parse_as
from whence.store.tensors import all_tensors, open_tensors, tensor_bytes

CONFIG, PARTS = "config.json", "parts.json"
PART = re.compile(r"([a-z]+(?:-\d+)?)-[0-9a-f]{16}\.safetensors")
ANY_FOLDER = ""
"""The folder's name is the user's choice, and no part of what the data are."""


class Parts(Config):
    """parts.json"""

    files: dict[str, FileName] = Field(min_length=1)


@dataclass(frozen=True)
class DataFolder:
    path: Path

    @classmethod
    def begin(cls, path: Path, config: Mapping[str, Any]) -> DataFolder:
        """config: what was requested, as JSON."""
        disk.make_directory(path)
        write_sealed(path / CONFIG, dict(config), owner=ANY_FOLDER)
        return cls(path)

    @cached_property
    def config(self) -> Any:
        """`FileNotFoundError` if the folder holds no data, `CorruptFileError` if it is damaged."""
        return read_sealed(self.path / CONFIG, ANY_FOLDER)

    @cached_property
    def request(self) -> str:
        """Of what was requested, a checksum."""
        return digest(canonical(self.config))[:16]

    @property
    def checksum(self) -> str:
        """Of what was requested and of what was computed; `FileNotFoundError` before everything is."""
        return digest(canonical([self.request, self.parts().files]))[:16]

    def parts(self) -> Parts:
        path = self.path / PARTS
        return parse_as(Parts, read_sealed(path, self.request), path)

    def write(self, part: str, tensors: Mapping[str, Tensor]) -> None:
        data = tensor_bytes(tensors, self._owner(part))
        disk.write_atomically(self.path / addressed_name(part, data, ".safetensors"), data)

    def finish(self, parts: Iterable[str]) -> None:
        """Once all parts are there: from now on no other file is read."""
        files = {part: path.name for part in parts if (path := self.find(part))}
        write_sealed(self.path / PARTS, Parts(files=files).model_dump(mode="json"), owner=self.request)

    @property
    def complete(self) -> bool:
        return bool(disk.kind_of(self.path / PARTS))

    def find(self, part: str) -> Path | None:
        """The file of a part; None if it was not computed."""
        return next(iter(self._files(part)), None)

    def read(self, part: str) -> dict[str, Tensor]:
        """Memory-mapped; `CorruptFileError` unless the part is what was computed."""
        if self.complete:
            listed = self.parts().files.get(part)
            if listed is None:
                raise CorruptFileError(self.path / PARTS, f"names no part {part!r}")
            path = self.path / listed
        else:
            path = self.find(part) or self.path / part
        return self._read(path, part)

    def problems(self) -> Iterator[tuple[str, str]]:
        """(file, what is wrong with it), for every file."""
        try:
            listed = set(self.parts().files.values()) if self.complete else set[str]()
        except (OSError, CorruptFileError) as damage:
            yield (damage.path.name if isinstance(damage, CorruptFileError) else CONFIG), _reason(damage)
            return
        try:
            _ = self.request
        except (OSError, CorruptFileError) as damage:
            yield CONFIG, _reason(damage)
            return
        for name in sorted(listed - {path.name for path in self._files()}):
            yield name, "missing"
        for path in self._files():
            part = PART.fullmatch(path.name)
            assert part is not None
            if listed and path.name not in listed:
                continue  # an earlier computation of the same part, which is never read
            try:
                self._read(path, part[1])
            except (OSError, CorruptFileError) as damage:
                yield path.name, _reason(damage)

    def _files(self, part: str | None = None) -> list[Path]:
        return [
            path
            for path in disk.entries(self.path)
            if (match := PART.fullmatch(path.name)) and part in (None, match[1])
        ]

    def _read(self, path: Path, part: str) -> dict[str, Tensor]:
        check_addressed(path)
        return all_tensors(open_tensors(path, self._owner(part))[0])

    def _owner(self, part: str) -> str:
        return f"{self.request}/{part}"


def _reason(damage: OSError | CorruptFileError) -> str:
    if isinstance(damage, FileNotFoundError):
        return "missing"
    return damage.reason if isinstance(damage, CorruptFileError) else disk.reason_of(damage)
