"""What can be done about damage, and what it costs. Nothing here deletes: what is damaged is set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from whence.formatting import as_size, duration
from whence.store import disk
from whence.store.data import CONFIG, PARTS, DataFolder
from whence.store.disk import CorruptFileError
from whence.store.lock import lock_folder
from whence.store.runs import ID, RunFolder, Store
from whence.training.config import AnyRun

Way = Literal["set aside", "collect", "tidy", "train"]
MADE_AGAIN = {
    "reports": "'whence report' writes it again",
    "artifacts": "the command that measured it measures it again",
    "activations": "the command that collected them collects them again",
    "labelled": "computed again when they are needed",
    "jobs": "start it again on its page of the app",
    "index.json": "made again when runs are listed",
}
HARMLESS = ("log.jsonl", "checkpoint-")
"""Files of a finished run whose damage costs no training"""


@dataclass(frozen=True)
class Repair:
    """Of one run, collection, page …"""

    what: str
    """As `verify_store` names it"""
    path: Path
    problems: Sequence[str]
    way: Way
    cost: str
    run: AnyRun | None = None
    """What to train, or to tidy"""


def plan_repairs(store: Store, problems: Mapping[str, Sequence[str]]) -> list[Repair]:
    """problems: as `verify_store` yields them. Nothing is changed."""
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
        return "its configuration is written again; parts that belong to it are kept"
    parts, again = len(data.config.parts), len(names - {PARTS})
    return f"{again} of {parts} parts, about {as_size(disk.size_of(data.path) * again // parts)}"


def _names(problems: Sequence[str]) -> set[str]:
    """Of the files that have them."""
    return {problem.partition(":")[0] for problem in problems}


def _plan_run(folder: RunFolder, problems: Sequence[str]) -> Repair:
    try:
        run = folder.config()
    except Exception:  # whatever is in it, it does not describe a run that could be trained
        cost = "its configuration is lost; the command that made it trains it again"
        return Repair(folder.id, folder.path, problems, "set aside", cost)
    try:
        status = folder.written_status()
    except (OSError, CorruptFileError):
        return Repair(folder.id, folder.path, problems, "train", "from its last good checkpoint; time unknown", run)
    if status.state == "finished" and all(problem.startswith(HARMLESS) for problem in problems):
        return Repair(folder.id, folder.path, problems, "tidy", "no training", run)
    per_step = status.seconds / max(status.step, 1)
    if status.state == "finished":
        cost = f"about {duration(status.seconds)} of training"
    else:
        cost = f"from its last good checkpoint, about {duration(per_step * (status.steps - status.step))} of training"
    return Repair(folder.id, folder.path, problems, "train", cost, run)


def set_aside(store: Store, repair: Repair) -> Path | None:
    """Where it is kept; None if it has gone meanwhile. `LockedError` if another process writes it."""
    path = repair.path
    if not disk.kind_of(path):
        return None
    with lock_folder(path) if disk.is_directory(path) else nullcontext():
        if path.parent.name == "labelled" and CONFIG not in _names(repair.problems):
            _clear(DataFolder(path), store)
            return store.damaged
        return store.set_aside(path)


def _clear(data: DataFolder, store: Store) -> None:
    """The parts that are whole are used when the others are computed again."""
    data.clear(store)
    if not data.missing():
        data.finish()
    elif data.complete:
        store.set_aside(data.path / PARTS)
