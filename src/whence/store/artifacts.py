"""What is measured without training, stored like a run: addressed by what was requested, sealed, listed, verified.

<store>/artifacts/<kind>-<id>.json     sealed   the request, the result, versions and time
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import whence
from whence.store.files import Corrupt, canonical, digest, read_sealed, write_sealed
from whence.store.runs import Store
from whence.training.config import FORMAT

NAME = re.compile(r"([a-z_]+)-([0-9a-f]{12})\.json")


@dataclass(frozen=True)
class Artifact:
    """One result, and what was requested."""

    kind: str
    request: Mapping[str, Any]
    result: Mapping[str, Any]
    created: float

    @property
    def id(self) -> str:
        return artifact_id(self.kind, self.request)


def artifact_id(kind: str, request: Mapping[str, Any]) -> str:
    return digest(canonical({"kind": kind, "request": request, "format": FORMAT}))[:12]


def find_artifact(kind: str, request: Mapping[str, Any], store: Store) -> Artifact | None:
    """None if it was never measured, or if its file is damaged."""
    with suppress(OSError, Corrupt):
        artifact = read_artifact(_path(kind, request, store))
        if canonical(artifact.request) == canonical(request):
            return artifact
    return None


def save_artifact(kind: str, request: Mapping[str, Any], result: Mapping[str, Any], store: Store) -> Artifact:
    path = _path(kind, request, store)
    path.parent.mkdir(parents=True, exist_ok=True)
    created = time.time()
    body = {"format": FORMAT, "kind": kind, "request": request, "result": result, "created": created}
    write_sealed(path, {**body, "whence": whence.__version__})
    return Artifact(kind, request, result, created)


def measured(kind: str, request: Mapping[str, Any], store: Store, measure: Callable[[], Mapping[str, Any]]) -> Artifact:
    """From the store if it is there, else measured now and saved."""
    return find_artifact(kind, request, store) or save_artifact(kind, request, measure(), store)


def read_artifact(path: Path) -> Artifact:
    body = read_sealed(path)
    try:
        kind, request, result = str(body["kind"]), dict(body["request"]), dict(body["result"])
        artifact = Artifact(kind, request, result, float(body["created"]))
    except (KeyError, TypeError, ValueError):
        raise Corrupt(path, "not an artifact") from None
    if body.get("format") != FORMAT:
        raise Corrupt(path, f"format {body.get('format')!r}; this version of whence reads format {FORMAT}")
    if path.name != f"{kind}-{artifact.id}.json":
        raise Corrupt(path, "its name does not belong to its content")
    return artifact


def artifacts(store: Store, kind: str = "") -> list[Path]:
    """Files of one kind, or of all; the latest first."""
    paths = [path for path in _folder(store).glob(f"{kind or '*'}-*.json") if NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)


def _path(kind: str, request: Mapping[str, Any], store: Store) -> Path:
    return _folder(store) / f"{kind}-{artifact_id(kind, request)}.json"


def _folder(store: Store) -> Path:
    return store.root / "artifacts"
