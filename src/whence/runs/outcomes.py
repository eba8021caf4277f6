"""How planned runs ended, as far as tables of results need to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from whence.runs.files import Corrupt
from whence.runs.spec import RunSpec
from whence.runs.store import Store


@dataclass(frozen=True)
class Outcome:
    """Only what finished may enter an average; what failed or was damaged is named with the reason."""

    state: Literal["finished", "failed", "damaged", "begun", "not run"]
    status: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


def outcome_of(store: Store, run_id: str, ends: Mapping[str, str] = {}) -> Outcome:
    """`ends`: how the processes of this sweep ended, where a run's own files cannot say it."""
    try:
        status: dict[str, Any] = store.folder(run_id).status()
    except FileNotFoundError:
        status = {"state": "not run"}
    except Corrupt as damage:
        return Outcome("damaged", reason=str(damage))
    if status["state"] == "finished":
        return Outcome("finished", status)
    if status["state"] == "failed":
        return Outcome("failed", status, status["error"]["message"])
    if ends.get(run_id) == "crashed":
        return Outcome("failed", status, "its process died; the same command tries again")
    return Outcome("begun" if status["state"] in ("running", "interrupted") else "not run", status)


def latest(
    store: Store, runs: Sequence[RunSpec], ends: Mapping[str, str] = {}
) -> tuple[dict[int, dict[str, Any]], dict[str, str]]:
    """Of one variant's runs: by seed, what those that finished found last; by id, why others failed."""
    metrics: dict[int, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for run in runs:
        end = outcome_of(store, run.id, ends)
        if end.state == "finished":
            metrics[run.seed] = end.status["latest"]
        elif end.reason:
            failed[run.id] = end.reason
    return metrics, failed
