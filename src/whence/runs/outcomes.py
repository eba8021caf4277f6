"""How planned runs ended, as far as tables of results need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from whence.runs.files import Corrupt
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
