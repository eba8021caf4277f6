"""Every call by which a command changes its store fails in turn, is cut short, or is the last one of its process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.faults.calls import CHANGING, WatchedOs
from tests.faults.subjects import Subject
from tests.faults.trial import Trial, results
from whence.execution.events import Event, OnEvent
from whence.experiments import comparison

NEED_ROOM = ("open", "write", "mkdir", "fsync")
CHANGE = tuple(name for name in CHANGING if name != "fsync")
EVENTS = "out/events"


def calls_of(subject: Subject) -> list[str]:
    """By name, in turn, while this process performs it."""
    calls: list[str] = []
    WatchedOs(lambda name, _: calls.append(name)).install()
    subject.perform()
    return calls


def fails(error: int, names: Sequence[str] = CHANGING, *, lasting: bool = False) -> Callable[[Trial, int], None]:
    """Call `at` of those with these names, or all from there on."""

    def before(trial: Trial, at: int) -> Callable[[str, tuple[Any, ...]], None]:
        counted = 0

        def count(name: str, arguments: tuple[Any, ...]) -> None:
            nonlocal counted
            counted += name in names
            if name in names and (counted > at if lasting else counted == at + 1):
                (trial.folder / "out" / "reached").touch()
                raise OSError(error, os.strerror(error))

        return count

    def run(trial: Trial, at: int) -> None:
        _disturbed(trial, lambda: WatchedOs(before(trial, at)).install())

    return run


def ends(trial: Trial, at: int) -> None:
    """Killed before call `at`."""
    _disturbed(trial, lambda: _end_at(at, trial.folder), complete=False)


def end_at(at: int, subject: Subject) -> int:
    """Perform it in this process, which is killed before call `at`."""
    _end_at(at, Path())
    return subject.perform()


def _end_at(at: int, folder: Path) -> None:
    counted = 0

    def count(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal counted
        counted += 1
        if counted == at + 1:
            (folder / "out" / "reached").touch()
            os._exit(0)

    WatchedOs(count).install()


def writes_less(trial: Trial, at: int) -> None:
    """Every call writes some of what it is given."""

    def shorter(size: int) -> int:
        (trial.folder / "out" / "reached").touch()
        return trial.rng.randint(1, size)

    _disturbed(trial, lambda: WatchedOs(lambda name, _: None, shorter).install())
    trial.check_results("after writes that were cut short")


def _disturbed(trial: Trial, disturb: Callable[[], None], *, complete: bool = True) -> None:
    """complete: exit code 0 means that everything was done."""

    def work() -> int:
        record_events(trial.folder / EVENTS)
        disturb()
        return trial.subject.perform()

    ended = trial.attempt("disturbed", work)
    if not (trial.folder / "out" / "reached").exists():
        trial.skipped = "the call was not reached"
        return
    trial.told = f"exit code {ended.code}: {ended.err[-200:].decode(errors='replace')}"
    if complete and ended.code == 0:
        trial.check_results("although the exit code was 0")
    reported = reported_runs(trial.folder / EVENTS)
    promised = {name: sum_ for name, sum_ in trial.of.expected.items() if name.split("/")[0] in reported}
    trial.check_kept(promised, "reported as finished")
    trial.look("runs list", "runs verify")
    before = results(trial.store)
    trial.go_on()
    trial.check_kept(before, "before the same command")
    trial.check_outside()


def record_events(path: Path) -> None:
    """The ends of runs that are reported, as they are reported."""
    run_all = comparison.run_all

    def recorded(configs: Any, store: Any, options: Any, on_event: OnEvent) -> Any:
        def forward(event: Event) -> None:
            with path.open("a") as file:
                file.write(json.dumps([event.kind, event.run]) + "\n")
            on_event(event)

        return run_all(configs, store, options, forward)

    comparison.run_all = recorded


def reported_runs(path: Path) -> set[str]:
    if not path.exists():
        return set()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return {run for kind, run in events if kind == "finished"}
