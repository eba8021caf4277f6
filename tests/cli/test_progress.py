"""Progress: how many runs are cached, an estimate from stored runs, and the time left from measured steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from whence.arena.run import ArenaRun
from whence.cli import progress
from whence.cli.progress import RunProgress, _Activity, watch_runs
from whence.execution.estimate import estimate_seconds, finished_runs
from whence.execution.events import Event
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.store.records import write_as
from whence.store.runs import Store

ONE = ExecutionOptions(threads=1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that `time.monotonic` returns to the module."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def stored(run: ArenaRun, store: Store, seconds: float) -> None:
    """A finished run that took so long from its start to its end."""
    status = execute(run, store, ONE)
    folder = store.folder(run.id)
    write_as(folder.path / "status.json", status.model_copy(update={"updated": status.created + seconds}))


def test_an_estimate_needs_finished_runs_of_the_same_configuration(tiny: Callable[..., ArenaRun], tmp_path: Path):
    store, short = Store(tmp_path), {"steps": 2, "evaluations": 1}
    stored(tiny(seed=0, training=short), store, 60)
    stored(tiny(seed=1, training=short), store, 3600)  # interrupted for a while
    finished = finished_runs(store)
    runs = [tiny(seed=seed, training=short) for seed in (2, 3, 4, 5)]
    assert estimate_seconds(runs, 2, store, finished) == pytest.approx(120)
    assert estimate_seconds(runs, 8, store, finished) == pytest.approx(60), "a run takes as long on many workers"
    assert estimate_seconds([*runs, tiny(training={"steps": 3})], 2, store, finished) is None
    assert estimate_seconds([tiny(model={"d_model": 32}, training=short)], 1, store, finished) is None
    assert estimate_seconds([], 1, store, finished) == 0


def test_the_plan_names_cached_runs_and_the_estimate(
    tiny: Callable[..., ArenaRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store, short = Store(tmp_path), {"steps": 2, "evaluations": 1}
    runs = [tiny(seed=seed, training=short) for seed in range(6)]
    stored(runs[0], store, 120)
    with watch_runs(store)(runs, 2, 1):
        pass
    assert "6 runs (1 cached). Estimated time: 5 min on 2 workers." in capsys.readouterr().err
    with watch_runs(store)([tiny(seed=9)], 1, 2):
        pass
    assert "1 run on 1 worker × 2 threads." in capsys.readouterr().err


def test_the_time_left_follows_from_the_steps(tiny: Callable[..., ArenaRun], clock: list[float]):
    runs = [tiny(seed=seed, training={"steps": 100}) for seed in range(4)]
    shown = RunProgress(runs, 2, 1)
    first, second, third, _ = (run.id for run in runs)
    clock[0] = 5  # workers take a while to start
    shown.event(Event(kind="started", run=first))
    shown.event(Event(kind="started", run=second, step=50))  # resumed
    assert shown._seconds_left() is None
    clock[0] = 15
    shown.event(Event(kind="progress", run=first, step=50))
    shown.event(Event(kind="progress", run=second, step=100))
    assert shown._seconds_left() == pytest.approx(10 / 100 * (50 + 0 + 100 + 100))
    shown.event(Event(kind="finished", run=second, step=100))
    shown.event(Event(kind="skipped", run=third, step=100))
    assert shown._seconds_left() == pytest.approx(10 / 100 * (50 + 100))
    assert shown._overall() == "2 of 4 runs done · 2 workers × 1 thread · 15 s · about 15 s left"
    shown.event(Event(kind="failed", run=first, step=50))
    assert shown._summary() == "4 runs in 15 s: 1 finished, 1 cached, 1 failed, 1 interrupted"


def test_a_message_that_counts_gets_the_time_left(clock: list[float]):
    activity = _Activity("Loading the model")
    clock[0] = 4
    assert str(activity.__rich__()) == "Loading the model … 4 s"
    activity.show("Collected 1 of 5 parts")
    assert str(activity.__rich__()) == "Collected 1 of 5 parts … 4 s"
    clock[0] = 24
    activity.show("Collected 3 of 5 parts")
    assert str(activity.__rich__()) == "Collected 3 of 5 parts … 24 s, about 20 s left"
    activity.show("Rendering 0/9")
    assert str(activity.__rich__()) == "Rendering 0/9 … 24 s"
