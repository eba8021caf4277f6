"""What was asked for, kept beside its reports as a config file, so that one short command makes it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whence.runs.files import addressed_name, write_atomically
from whence.runs.store import Store
from whence.spec import Spec
from whence.stats import SEEDS_TO_DECIDE


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


def earlier_look(kind: str, spec: Any, store: Store, extendable: Sequence[str] = ()) -> int:
    """At how many seeds verdicts of this comparison were shown before it was extended; 0: never.

    The configurations that a store keeps are the record: one that is the same but for fewer seeds, and for the fields
    that are `extendable`, had its verdicts shown. To go on after that is optional stopping.
    """
    ignored = {"seeds", *extendable}
    wanted = spec.model_dump(mode="json")
    found = 0
    for path in kept(kind, store):
        try:
            other = json.loads(path.read_bytes())
            seeds = int(other["seeds"])
            same = all(other[name] == value for name, value in wanted.items() if name not in ignored)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # unreadable, or of another version: it showed nothing of this comparison
        if same and SEEDS_TO_DECIDE <= seeds < spec.seeds:
            found = max(found, seeds)
    return found


def _bytes(spec: Spec) -> bytes:
    return (json.dumps(spec.model_dump(mode="json"), indent=1) + "\n").encode()
