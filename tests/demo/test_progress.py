"""Progress of the tour: the share that is done and the time left, from what sections report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from whence.cli import demo
from whence.demo.section import SectionProgress
from whence.execution.events import Event

SECTIONS: Any = [SimpleNamespace(name=name, seconds={"full": 100.0}) for name in ("one", "two")]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(demo.time, "monotonic", lambda: now.seconds)
    return now


def test_time_left_follows_the_speed_of_this_machine(clock: Any) -> None:
    progress = demo._TourProgress(SECTIONS, "full")
    assert progress.left() == 200
    progress.update(SECTIONS[0], 0.0, 0.5, "begins")
    clock.seconds = 200
    progress.update(SECTIONS[0], 1.0, 1.0, "done")
    assert progress.left() == 200, "half as fast as expected"
    assert "1 of 2 sections · 3 min 20 s · about 3 min 20 s left" in progress.summary()


def test_a_phase_that_reports_nothing_advances_to_its_end_and_no_further(clock: Any) -> None:
    progress = demo._TourProgress(SECTIONS, "full")
    progress.update(SECTIONS[0], 0.0, 0.5, "begins")
    clock.seconds = 20
    assert progress.share("one") == pytest.approx(0.2)
    clock.seconds = 500
    assert progress.share("one") == pytest.approx(0.95 * 0.5)


def test_phases_and_steps_of_runs_add_up() -> None:
    reports: list[tuple[float, float, str]] = []
    progress = SectionProgress(lambda done, end, message: reports.append((done, end, message)))
    runs: Any = [SimpleNamespace(id=name, training=SimpleNamespace(steps=10)) for name in ("a", "b")]
    progress.phase(0.8, "training")
    with progress.watch(runs, 1, 1) as on_event:
        on_event(Event(kind="progress", run="a", step=5))
        on_event(Event(kind="skipped", run="b"))
        on_event(Event(kind="stopping"))
    progress.phase(0.2, "drawing")
    assert [done for done, _, _ in reports] == pytest.approx([0, 0.2, 0.6, 0.6, 0.8])
    assert reports[-1][1] == pytest.approx(1.0)
    assert "1 of 2 models done, 15 of 20 steps" in reports[2][2]
