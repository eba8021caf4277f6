"""Every label against a solver that shares no code with the task; every floor against a baseline that has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from whence.tasks import TASKS
from whence.tasks.base import Batch, Task


def k_back(inputs: list[int], task: Task) -> list[int | None]:
    return [None if i < task.k else inputs[i - task.k] for i in range(len(inputs))]  # type: ignore[attr-defined]


def running_sum(inputs: list[int], task: Task) -> list[int | None]:
    return [None if i == 0 else sum(inputs[:i]) % task.base for i in range(len(inputs))]  # type: ignore[attr-defined]


def first_is_last(inputs: list[int], _: Task) -> int:
    return int(inputs[0] == inputs[-1])


def distance(inputs: list[int], task: Task) -> float:
    first, second = (i for i, symbol in enumerate(inputs) if symbol == task.distractors)  # type: ignore[attr-defined]
    return (second - first) / task.unit  # type: ignore[attr-defined]


SOLVERS: dict[str, Callable[..., object]] = {
    "k_back_recall": k_back,
    "modular_sum": running_sum,
    "long_range_match": first_is_last,
    "marker_distance": distance,
}


def draw(name: str, batch: int, length: int, seed: int = 0) -> tuple[Task, Batch]:
    task = TASKS.choose(name).build()
    return task, task.sample(torch.Generator().manual_seed(seed), batch, length)


def test_every_task_has_a_solver() -> None:
    assert set(SOLVERS) == set(TASKS.names())


@pytest.mark.parametrize("name", TASKS.names())
@pytest.mark.parametrize("length", [4, 5, 17, 40])
def test_labels(name: str, length: int) -> None:
    task, batch = draw(name, 50, length)
    assert batch.inputs.shape == (50, length)
    assert batch.positions.tolist() == [list(range(length))]
    assert batch.inputs.min() >= 0
    assert batch.inputs.max() < task.symbols
    for row in range(50):
        answer = SOLVERS[name](batch.inputs[row].tolist(), task)
        targets, scored = batch.targets[row].tolist(), batch.scored[row].tolist()
        if isinstance(answer, list):
            assert scored == [a is not None for a in answer]
            assert [t for t, s in zip(targets, scored, strict=True) if s] == [a for a in answer if a is not None]
        elif task.goal == "regression":
            assert targets == pytest.approx([answer])
        else:
            assert targets == answer
    if task.goal == "classification":
        assert batch.targets.max() < task.outputs


@pytest.mark.parametrize("name", TASKS.names())
def test_equal_generators_give_equal_data(name: str) -> None:
    one, two, other = (draw(name, 4, 12, seed)[1] for seed in (3, 3, 4))
    assert torch.equal(one.inputs, two.inputs)
    assert torch.equal(one.targets, two.targets)
    assert not torch.equal(one.inputs, other.inputs)


@pytest.mark.parametrize("name", TASKS.names())
def test_the_shortest_length_works_and_worked_examples_are_there(name: str) -> None:
    task = TASKS.choose(name).build()
    batch = task.sample(torch.Generator().manual_seed(0), 8, max(task.shortest, 2))
    assert batch.scored.any()
    assert (type(task).__doc__ or "").count("\n") >= 2, "no worked example"


def accuracy(guesses: list[int], answers: list[int]) -> float:
    return sum(g == a for g, a in zip(guesses, answers, strict=True)) / len(answers)


def test_floor_of_k_back_recall_is_what_the_shortcut_scores() -> None:
    task, batch = draw("k_back_recall", 400, 32, seed=9)
    guesses, answers = [], []
    for row in batch.inputs.tolist():
        for i in range(3, 32):
            counts = Counter(row[:i])
            guesses.append(min(counts, key=lambda s: (-counts[s], s)))
            answers.append(row[i - 3])
    floor = task.floors(32)["most frequent symbol so far"]
    assert accuracy(guesses, answers) == pytest.approx(floor, abs=0.012)
    assert floor == pytest.approx(0.21, abs=0.02)
    assert task.floors(64, first=32)["most frequent symbol so far"] < floor


def test_floor_of_modular_sum() -> None:
    task, batch = draw("modular_sum", 4000, 20, seed=9)
    copies = (batch.targets[:, 1:] == batch.inputs[:, :-1]).float().mean().item()
    assert copies == pytest.approx(task.floors(20)["copy of the previous number"], abs=0.006)
    beyond = (batch.targets[:, 10:] == batch.inputs[:, 9:-1]).float().mean().item()
    assert beyond == pytest.approx(task.floors(20, first=10)["copy of the previous number"], abs=0.006)


def test_long_range_match_gives_nothing_to_bags_and_counts() -> None:
    """Whatever can be said of the symbols without their places has the same distribution under both answers."""
    task, batch = draw("long_range_match", 60_000, 12, seed=9)
    last = batch.inputs[:, -1:]
    seen = (batch.inputs[:, :-1] == last).sum(1)
    yes, no = seen[batch.targets == 1], seen[batch.targets == 0]
    assert seen.min() >= 1, "never having been seen would give the answer away"
    for count in range(1, 4):
        assert (yes == count).float().mean().item() == pytest.approx((no == count).float().mean().item(), abs=0.012)
    by_count = max(((seen >= c) == (batch.targets == 1)).float().mean().item() for c in range(1, 6))
    assert by_count == pytest.approx(task.floors(12)["count of symbols"], abs=0.01)
    assert batch.targets.float().mean().item() == pytest.approx(0.5, abs=0.01)
    recent = (batch.inputs[:, 6:-1] == last).sum(1)
    by_recent = max(((recent < c) == (batch.targets == 1)).float().mean().item() for c in range(1, 6))
    assert by_recent == pytest.approx(task.floors(12)["count of symbols in the recent half"], abs=0.02)


def test_floor_of_marker_distance() -> None:
    task, batch = draw("marker_distance", 40_000, 20, seed=9)
    found = Counter((batch.targets * task.unit).round().int().flatten().tolist())  # type: ignore[attr-defined]
    best = max(found.values()) / 40_000
    assert best == pytest.approx(task.floors(20)["the commonest distance (1)"], abs=0.006)
    right = task.correct(batch.targets + 0.4 / task.unit, batch.targets)  # type: ignore[attr-defined]
    assert right.all()
    assert not task.correct(batch.targets + 0.6 / task.unit, batch.targets).any()  # type: ignore[attr-defined]
