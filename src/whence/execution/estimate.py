"""How long runs will take, estimated from the stored runs that differ from them in the seed only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from whence.store.disk import CorruptFileError
from whence.store.files import canonical
from whence.store.records import RunSummary
from whence.store.runs import Store
from whence.training.config import AnyRun

COMPARED = 3
"""Stored runs whose configuration is read for each variant, the latest first"""


def finished_runs(store: Store) -> dict[str, RunSummary]:
    return {row.id: row for row in store.summaries() if row.state == "finished"}


def estimate_seconds(
    runs: Sequence[AnyRun], workers: int, store: Store, finished: dict[str, RunSummary]
) -> float | None:
    """Wall-clock seconds for these runs. None unless the store has a finished run of every variant among them.

    An interruption lengthens the time between the start and the end of a stored run, so the shortest of them counts.
    """
    earlier: dict[tuple[Any, ...], list[RunSummary]] = {}
    for row in reversed(finished.values()):
        earlier.setdefault(_key(row.kind, row.labels, row.steps), []).append(row)
    known: dict[str, float | None] = {}
    times: list[float] = []
    for run in runs:
        variant = _without_seed(run.document())
        if variant not in known:
            candidates = earlier.get(_key(run.kind, run.labels(), run.training.steps), [])
            known[variant] = _shortest(variant, candidates[:COMPARED], store)
        if (seconds := known[variant]) is None:
            return None
        times.append(seconds)
    return max(sum(times) / workers, *times) if times else 0.0


def _key(kind: str, labels: dict[str, str], steps: int) -> tuple[Any, ...]:
    return kind, tuple(sorted(labels.items())), steps


def _without_seed(document: dict[str, Any]) -> str:
    return canonical({**document, "seed": 0})


def _shortest(variant: str, candidates: Sequence[RunSummary], store: Store) -> float | None:
    times: list[float] = []
    for row in candidates:
        with suppress(OSError, CorruptFileError):
            if _without_seed(store.folder(row.id).config_document()) == variant:
                times.append(row.updated - row.created)
    return min(times, default=None)
