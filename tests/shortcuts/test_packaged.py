"""The packaged baselines: complete, current, and no lower than what is known to be possible."""

from __future__ import annotations

import json

import pytest

from whence.shortcuts import baselines
from whence.shortcuts.__main__ import packaged_entries
from whence.shortcuts.search import SOLVED, best
from whence.tasks import TASKS, Task

NOISE = 0.01
"""Three standard errors of 20,000 answers, in the worst case."""


def test_every_entry_is_packaged_for_the_current_versions() -> None:
    wanted = set(packaged_entries())
    missing = sorted(wanted - set(baselines.packaged()))
    assert not missing, f"run 'make baselines': no baseline for {missing}"
    assert not sorted(set(baselines.packaged()) - wanted), "run 'make baselines': entries that nothing asks for"


@pytest.mark.parametrize("name", TASKS.names())
def test_defaults_are_packaged_at_training_and_test_lengths(name: str) -> None:
    choice = TASKS.choose(name)
    task: Task = choice.build()
    for length in (task.train_length, *task.ood_lengths(task.train_length)):
        first = task.train_length if length > task.train_length else 0
        assert baselines.key(choice, length, first) in baselines.packaged()


KNOWN = [
    ("reversed_pattern", 32, 0.99),
    ("reversed_pattern:ask=location", 32, 0.99),
    ("long_range_match", 16, 0.76),
    ("long_range_match", 32, 0.73),
    ("long_range_match", 128, 0.60),
    ("own_position", 16, 0.59),
    ("own_position", 32, 0.35),
    ("marker_distance", 32, 4 / 32),
    ("marker_distance", 64, 4 / 64),
    ("marker_distance", 128, 4 / 128),
    ("modular_sum", 16, 0.58),
    ("modular_sum", 32, 0.33),
    ("k_back:k=5", 32, 0.73),
    ("k_back_recall:k=1", 16, 0.56),
    ("sort:answers=blank", 16, 0.56),
    ("modular_arithmetic", 16, 0.263),
    ("parity", 128, 0.66),
]
"""Task, length, and the accuracy of a predictor without the skill that once exceeded the stated baseline."""


@pytest.mark.parametrize(("text", "length", "accuracy"), KNOWN)
def test_baselines_reach_what_is_known(text: str, length: int, accuracy: float) -> None:
    assert baselines.stated_baseline(TASKS.choose(text), length).accuracy >= accuracy - NOISE / 2


WAYS = [
    ("even_pairs", 32, "bigrams", 0.99),
    ("long_range_match", 32, "bigrams", 0.99),
    ("copy", 16, "suffix", 0.85),
    ("reverse", 16, "suffix", 0.85),
    ("repeat_copy", 16, "suffix", 0.85),
    ("sort:answers=blank", 16, "counts", 0.95),
]
"""Ways of solving a task that its declared skill names, and that the search has found."""


@pytest.mark.parametrize(("text", "length", "feature_class", "accuracy"), WAYS)
def test_other_ways_are_named_by_the_skill(text: str, length: int, feature_class: str, accuracy: float) -> None:
    choice = TASKS.choose(text)
    assert feature_class in choice.build().expressed_by
    scores = [score for score in baselines.scores(choice, length) if score.feature_class == feature_class]
    assert scores[0].expresses_skill
    assert scores[0].accuracy >= accuracy


@pytest.mark.parametrize("name", TASKS.names())
def test_a_shortcut_that_solves_a_ranked_task_is_a_defect(name: str) -> None:
    task = TASKS[name]
    baseline = baselines.stated_baseline(TASKS.choose(name), task.train_length)
    if task.ranked:
        assert baseline.accuracy < SOLVED, f"{baseline.name}: rebuild the task, or set ranked = False"


@pytest.mark.parametrize("ask", ["location", "detection"])
@pytest.mark.parametrize("length", [32, 64, 128])
def test_the_pattern_task_needs_its_pattern(ask: str, length: int) -> None:
    for score in baselines.scores(TASKS.choose(f"shift_invariant_pattern:ask={ask}"), length):
        assert score.expresses_skill or score.accuracy <= 0.55, score


def test_scores_are_read_as_they_were_written() -> None:
    written = json.loads(baselines.PACKAGED.read_text())
    for name, scores in baselines.packaged().items():
        assert [score.rounded().model_dump(mode="json") for score in scores] == written[name]
        assert [score.accuracy for score in scores] == sorted((score.accuracy for score in scores), reverse=True)
        assert 0 < best(scores).accuracy <= 1, name
        for score in scores:
            assert 0 <= score.interval[0] <= score.accuracy <= score.interval[1] <= 1
