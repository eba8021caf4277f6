"""What was asked for, kept beside its reports as a config file, so that one short command makes it again."""

from __future__ import annotations

import json
from pathlib import Path

from whence.runs.files import addressed_name, write_atomically
from whence.runs.store import Store
from whence.spec import Spec


def keep(kind: str, spec: Spec, store: Store) -> Path:
    """`kind`: the instrument, which the file's name begins with."""
    path = kept_path(kind, spec, store)
    write_atomically(path, _bytes(spec))
    return path


def kept_path(kind: str, spec: Spec, store: Store) -> Path:
    return store.reports / addressed_name(kind, _bytes(spec), ".json")


def kept(kind: str, store: Store) -> list[Path]:
    """The latest first."""
    found = store.reports.glob(f"{kind}-*.json") if store.reports.is_dir() else []
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def _bytes(spec: Spec) -> bytes:
    return (json.dumps(spec.model_dump(mode="json"), indent=1) + "\n").encode()
