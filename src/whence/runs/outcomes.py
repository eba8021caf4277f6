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

    @property
    def diverged(self) -> bool:
        """Failed by its own numbers, as it would again. Other failures say nothing about the method."""
        return self.state == "failed" and self.status.get("error", {}).get("kind") == "non_finite"


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


@dataclass(frozen=True)
class Results:
    """The runs of one variant."""

    metrics: dict[int, dict[str, Any]]
    """By seed, the last evaluation of runs that finished"""
    failed: dict[str, str]
    """By id, why others failed or are damaged"""
    diverged: frozenset[int]
    """Seeds on which the variant failed by its own numbers"""
    ended: frozenset[str]
    """Ids of the runs that finished or diverged"""


def results_of(store: Store, runs: Sequence[RunSpec], ends: Mapping[str, str] = {}) -> Results:
    outcomes = {run.id: outcome_of(store, run.id, ends) for run in runs}
    finished = [run for run in runs if outcomes[run.id].state == "finished"]
    diverged = [run for run in runs if outcomes[run.id].diverged]
    return Results(
        {run.seed: outcomes[run.id].status["latest"] for run in finished},
        {run: outcome.reason for run, outcome in outcomes.items() if outcome.reason},
        frozenset(run.seed for run in diverged),
        frozenset(run.id for run in (*finished, *diverged)),
    )
