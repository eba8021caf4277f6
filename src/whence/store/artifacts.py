"""Artifacts: measurements made without training, stored under a hash of the request, with a checksum.

<store>/artifacts/<kind>-<id>.json     sealed   the request, the result, versions and time

A kind of artifact is declared once, with the types of its request and of its result:

    AUDITS = ArtifactKind("audit", AuditConfig, Audit)
    artifact = AUDITS.measure(request, store, lambda: audit(target))   # computed only if it is not in the store
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, JsonValue

import whence
from whence.config import Config
from whence.errors import UserError
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import FORMAT, canonical, digest
from whence.store.records import Time, parse_as, read_as, write_as
from whence.store.runs import Store

NAME = re.compile(r"([a-z_]+)-([0-9a-f]{12})\.json")
Q = TypeVar("Q", bound=Config)
T = TypeVar("T", bound=Config)


class ArtifactDocument(Config):
    """The file of an artifact of any kind."""

    kind: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")]
    request: dict[str, JsonValue]
    result: dict[str, JsonValue]
    created: Time
    whence: str
    """Version"""

    @property
    def id(self) -> str:
        return _artifact_id(self.kind, self.request)


@dataclass(frozen=True)
class Artifact(Generic[Q, T]):
    """A result with its request."""

    id: str
    request: Q
    result: T
    created: float
    """Seconds since 1970"""
    path: Path


@dataclass(frozen=True)
class ArtifactKind(Generic[Q, T]):
    """A kind of artifact. Names of files begin with `name`."""

    name: str
    request: type[Q]
    result: type[T]

    def id(self, request: Q) -> str:
        return _artifact_id(self.name, request.model_dump(mode="json"))

    def path(self, request: Q, store: Store) -> Path:
        return store.artifacts / f"{self.name}-{self.id(request)}.json"

    def find(self, request: Q, store: Store) -> Artifact[Q, T] | None:
        """The stored artifact; None if it was not measured or its file is damaged."""
        with suppress(OSError, CorruptFileError):
            return self.read(self.path(request, store))
        return None

    def save(self, request: Q, result: T, store: Store) -> Artifact[Q, T]:
        path = self.path(request, store)
        disk.make_directory(path.parent)
        store.make_room(path)
        document = ArtifactDocument(
            kind=self.name,
            request=request.model_dump(mode="json"),
            result=result.model_dump(mode="json"),
            created=time.time(),
            whence=whence.__version__,
        )
        write_as(path, document)
        return Artifact(document.id, request, result, document.created, path)

    def measure(self, request: Q, store: Store, compute: Callable[[], T]) -> Artifact[Q, T]:
        """The stored artifact, or a new one that is computed and saved."""
        return self.find(request, store) or self.save(request, compute(), store)

    def read(self, path: Path) -> Artifact[Q, T]:
        document = read_artifact(path)
        request, result = (
            parse_as(self.request, document.request, path),
            parse_as(self.result, document.result, path),
        )
        return Artifact(document.id, request, result, document.created, path)

    def all(self, store: Store) -> Iterator[Artifact[Q, T]]:
        """All readable artifacts of this kind, the latest first."""
        for path in artifact_paths(store, self.name):
            with suppress(OSError, CorruptFileError):
                yield self.read(path)

    def open(self, text: str, store: Store) -> Artifact[Q, T]:
        """The artifact whose id, or name of file, begins with `text`."""
        paths = artifact_paths(store, self.name)
        matches = [path for path in paths if text and path.stem.removeprefix(f"{self.name}-").startswith(text)]
        matches = matches or [path for path in paths if text and path.stem.startswith(text)]
        if len(matches) != 1:
            known = ", ".join(path.stem for path in matches or paths) or "none"
            problem = "is ambiguous" if matches else "is not in the store"
            raise UserError(f"{self.name}: {text!r} {problem}. Stored: {known}.")
        try:
            return self.read(matches[0])
        except (OSError, CorruptFileError) as damage:
            raise UserError(f"{self.name}: {matches[0].stem} cannot be read: {damage}.") from None


def artifact_paths(store: Store, kind: str = "") -> list[Path]:
    """Files of one kind or of all kinds, the latest first."""
    paths = [path for path in disk.entries(store.artifacts) if NAME.fullmatch(path.name)]
    return disk.latest_first(path for path in paths if not kind or path.name.startswith(f"{kind}-"))


def read_artifact(path: Path) -> ArtifactDocument:
    """Read an artifact of any kind; `CorruptFileError` if its checksum, format or name is wrong."""
    document = read_as(ArtifactDocument, path)
    if path.name != f"{document.kind}-{document.id}.json":
        raise CorruptFileError(path, "its name does not match its content")
    return document


def _artifact_id(kind: str, request: Any) -> str:
    return digest(canonical({"kind": kind, "request": request, "format": FORMAT}))[:12]
