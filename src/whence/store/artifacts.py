"""What is measured without training, stored like a run: addressed by what was requested, checksummed, listed, verified.

<store>/artifacts/<kind>-<id>.json     sealed   the request, the result, versions and time

A kind of artifact is declared once, with the types of its request and of its result:

    AUDITS = ArtifactKind("audit", AuditConfig, Audit)
    artifact = AUDITS.measure(request, store, lambda: audit(target))   # from the store if it is there
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import whence
from whence.config import Config
from whence.errors import UserError
from whence.store.files import FORMAT, CorruptFileError, canonical, digest, read_sealed, write_sealed
from whence.store.runs import Store

NAME = re.compile(r"([a-z_]+)-([0-9a-f]{12})\.json")
Q = TypeVar("Q", bound=Config)
T = TypeVar("T", bound=Config)


@dataclass(frozen=True)
class Artifact(Generic[Q, T]):
    """One result, and what was requested."""

    id: str
    request: Q
    result: T
    created: float
    """Seconds since 1970"""
    path: Path


@dataclass(frozen=True)
class ArtifactKind(Generic[Q, T]):
    """All artifacts of one kind. `name` begins the names of their files."""

    name: str
    request: type[Q]
    result: type[T]

    def id(self, request: Q) -> str:
        return _artifact_id(self.name, request.model_dump(mode="json"))

    def path(self, request: Q, store: Store) -> Path:
        return store.artifacts / f"{self.name}-{self.id(request)}.json"

    def find(self, request: Q, store: Store) -> Artifact[Q, T] | None:
        """None if it was never measured, or if its file is damaged."""
        with suppress(OSError, CorruptFileError):
            return self.read(self.path(request, store))
        return None

    def save(self, request: Q, result: T, store: Store) -> Artifact[Q, T]:
        path = self.path(request, store)
        path.parent.mkdir(parents=True, exist_ok=True)
        created = time.time()
        measured = {"request": request.model_dump(mode="json"), "result": result.model_dump(mode="json")}
        body = {"kind": self.name, **measured, "created": created, "whence": whence.__version__}
        write_sealed(path, body)
        return Artifact(self.id(request), request, result, created, path)

    def measure(self, request: Q, store: Store, compute: Callable[[], T]) -> Artifact[Q, T]:
        """From the store if it is there, else computed now and saved."""
        return self.find(request, store) or self.save(request, compute(), store)

    def read(self, path: Path) -> Artifact[Q, T]:
        body = read_document_of_artifact(path)
        try:
            request, result = self.request.model_validate(body["request"]), self.result.model_validate(body["result"])
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise CorruptFileError(path, f"not an artifact of kind {self.name!r} ({reason})") from None
        return Artifact(_artifact_id(self.name, body["request"]), request, result, float(body["created"]), path)

    def all(self, store: Store) -> Iterator[Artifact[Q, T]]:
        """Those that can be read, the latest first."""
        for path in artifact_paths(store, self.name):
            with suppress(OSError, CorruptFileError):
                yield self.read(path)

    def open(self, text: str, store: Store) -> Artifact[Q, T]:
        """By the beginning of its id, or of the name of its file."""
        paths = artifact_paths(store, self.name)
        matches = [path for path in paths if text and path.stem.removeprefix(f"{self.name}-").startswith(text)]
        matches = matches or [path for path in paths if text and path.stem.startswith(text)]
        if len(matches) != 1:
            known = ", ".join(path.stem for path in matches or paths) or "none yet"
            problem = "is ambiguous" if matches else "is not in the store"
            raise UserError(f"{self.name}: {text!r} {problem}. Allowed: {known}.")
        try:
            return self.read(matches[0])
        except (OSError, CorruptFileError) as damage:
            raise UserError(f"{self.name}: {matches[0].stem} cannot be read: {damage}.") from None


def artifact_paths(store: Store, kind: str = "") -> list[Path]:
    """Files of one kind, or of all; the latest first."""
    paths = [path for path in store.artifacts.glob(f"{kind or '*'}-*.json") if NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)


def read_document_of_artifact(path: Path) -> dict[str, Any]:
    """Checksum, format and address are checked, whatever its kind; `CorruptFileError` if one of them is wrong."""
    body = read_sealed(path)
    if not all(key in body for key in ("kind", "request", "result", "created")):
        raise CorruptFileError(path, "not an artifact")
    if path.name != f"{body['kind']}-{_artifact_id(body['kind'], body['request'])}.json":
        raise CorruptFileError(path, "its name does not belong to its content")
    return body


def _artifact_id(kind: str, request: Any) -> str:
    return digest(canonical({"kind": kind, "request": request, "format": FORMAT}))[:12]
