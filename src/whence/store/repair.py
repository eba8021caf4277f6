"""Plans of repairs, with their costs. Damaged files are set aside, never deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from whence.formatting import as_size, counted, duration
from whence.store import disk
from whence.store.data import CONFIG, PARTS, DataFolder
from whence.store.disk import CorruptFileError
from whence.store.lock import lock_folder
from whence.store.runs import ID, RunFolder, Store
from whence.training.config import AnyRun

Way = Literal["set aside", "collect", "tidy", "train"]
MADE_AGAIN = {
    "reports": "write it again with 'whence report'",
    "artifacts": "repeat the command that measured it",
    "activations": "repeat the command that collected them",
    "labelled": "recomputed when they are needed",
    "jobs": "start it again on its page of the app",
    "index.json": "rebuilt when runs are listed",
}
HARMLESS = ("log.jsonl", "checkpoint-")
"""Files of a finished run that can be repaired without training"""


@dataclass(frozen=True)
class Repair:
    """The plan for one damaged run, collection, report, …"""

    what: str
    """The name in `verify_store`"""
    path: Path
    problems: Sequence[str]
    way: Way
    cost: str
    run: AnyRun | None = None
    """The run to train or to clean up"""


def plan_repairs(store: Store, problems: Mapping[str, Sequence[str]]) -> list[Repair]:
    """Plan a repair for every problem that `verify_store` yields. Nothing is changed."""
    return [_plan(store, what, found) for what, found in problems.items() if found]


def _plan(store: Store, what: str, problems: Sequence[str]) -> Repair:
    if ID.fullmatch(what):
        return _plan_run(store.folder(what), problems)
    path, place = store.root / what, what.split("/")[0]
    if place == "activations" and disk.is_directory(path):
        return Repair(what, path, problems, "collect", _cost_of_collecting(DataFolder(path), problems))
    return Repair(what, path, problems, "set aside", MADE_AGAIN[place])


def _cost_of_collecting(data: DataFolder, problems: Sequence[str]) -> str:
    names = _names(problems)
    if CONFIG in names:
        return "rewrites its configuration; parts that belong to it are kept"
    parts, again = len(data.config.parts), len(names - {PARTS})
    return f"recomputes {again} of {counted(parts, 'part')}, about {as_size(disk.size_of(data.path) * again // parts)}"


def _names(problems: Sequence[str]) -> set[str]:
    """Names of the files that have problems."""
    return {problem.partition(":")[0] for problem in problems}


def _plan_run(folder: RunFolder, problems: Sequence[str]) -> Repair:
    try:
        run = folder.config()
    except Exception:  # whatever is in it, it does not describe a run that could be trained
        cost = "its configuration is lost; repeat the command that trained it"
        return Repair(folder.id, folder.path, problems, "set aside", cost)
    try:
        status = folder.written_status()
    except (OSError, CorruptFileError):
        return Repair(folder.id, folder.path, problems, "train", "from its last intact checkpoint; time unknown", run)
    if status.state == "finished" and all(problem.startswith(HARMLESS) for problem in problems):
        return Repair(folder.id, folder.path, problems, "tidy", "needs no training", run)
    per_step = status.seconds / max(status.step, 1)
    if status.state == "finished":
        cost = f"about {duration(status.seconds)} of training"
    else:
        cost = f"from its last intact checkpoint, about {duration(per_step * (status.steps - status.step))} of training"
    return Repair(folder.id, folder.path, problems, "train", cost, run)


def set_aside(store: Store, repair: Repair) -> Path | None:
    """Move it to `damaged/`; return the new path, or None if it no longer exists. `LockedError` if it is locked."""
    path = repair.path
    if not disk.kind_of(path):
        return None
    with lock_folder(path) if disk.is_directory(path) else nullcontext():
        if path.parent.name == "labelled" and CONFIG not in _names(repair.problems):
            _clear(DataFolder(path), store)
            return store.damaged
        return store.set_aside(path)


def _clear(data: DataFolder, store: Store) -> None:
    """Set aside damaged parts only; intact ones are used again."""
    data.clear(store)
    if not data.missing():
        data.finish()
    elif data.complete:
        store.set_aside(data.path / PARTS)
