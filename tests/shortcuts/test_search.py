"""Conformance: every registered task runs through a reduced search, which agrees with the packaged figures."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from pathlib import Path

import pytest

from whence.shortcuts import baselines, search
from whence.shortcuts.classes import CLASSES
from whence.shortcuts.search import SAMPLES, best
from whence.tasks import TASKS, Task

REDUCED = 1000
MARGIN = 0.06
"""Three standard errors of 1,000 answers are 0.05."""
SHORTFALL = 0.15
"""Models with many weights find less with few answers to train on."""


@pytest.mark.parametrize("name", TASKS.names())
def test_a_reduced_search_agrees_with_the_packaged_baseline(name: str) -> None:
    """The class that gave the baseline is searched again, and so are the lookup tables of all others."""
    choice = TASKS.choose(name)
    task: Task = choice.build()
    stated = baselines.stated_baseline(choice, task.train_length)
    classes = [
        kind
        for kind in CLASSES
        if kind in (stated.feature_class, "majority", "declared", "window sums", "suffix", "variety", "last symbol")
    ]
    scores = search.search(task, task.train_length, samples=REDUCED, classes=classes)
    assert best(scores).accuracy <= stated.accuracy + MARGIN
    if stated.feature_class in CLASSES:
        assert best(scores).accuracy >= stated.accuracy - SHORTFALL


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS.names())
def test_a_full_search_gives_the_packaged_baseline(name: str) -> None:
    choice = TASKS.choose(name)
    task: Task = choice.build()
    actual = best(search.search(task, task.train_length, samples=SAMPLES))
    assert actual.accuracy == pytest.approx(baselines.stated_baseline(choice, task.train_length).accuracy, abs=0.015)


def test_other_options_are_searched_once_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        baselines, "search", lambda *arguments: search.search(*arguments, samples=100, classes=("majority", "declared"))
    )
    choice = TASKS.choose("parity")
    actual = baselines.scores(choice, 7)
    assert capsys.readouterr().err.count("\n") == 1, "one line that says what takes so long"
    (file,) = tmp_path.rglob("*.json")
    baselines._in_memory.clear()
    monkeypatch.setattr(baselines, "search", None)
    assert [score.name for score in baselines.scores(choice, 7)] == [score.name for score in actual]
    assert capsys.readouterr().err == ""

    file.write_text("damaged")
    baselines._in_memory.clear()
    monkeypatch.setattr(
        baselines, "search", lambda *arguments: search.search(*arguments, samples=100, classes=("majority",))
    )
    assert baselines.scores(choice, 7)
    assert json.loads(file.read_text())
    baselines._in_memory.clear()


def test_baselines_of_positions() -> None:
    task = TASKS.choose("k_back_recall:k=2,symbols=4").build()
    actual = search.baseline_by_position(task, 10)
    assert list(actual) == list(range(2, 10))
    assert all(1 / 4 <= value <= 1 for value in actual.values())
    assert actual[2] < 0.7, "two of the first three tokens are visible as recent ones, not the one asked for"
    assert search.baseline_by_position(task, 10) is actual, "measured once"
    assert not isinstance(actual, MutableMapping), "what one reader does to it would be seen by the next"
