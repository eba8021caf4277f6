"""Shortcuts that tasks declare, against predictors in plain Python that share no code with them."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable

import pytest
import torch

from whence.shortcuts.search import search
from whence.tasks import TASKS, Batch, Task

Baseline = Callable[[list[int], int], Hashable]
"""What the baseline goes by: from a row of inputs and the place that is asked about."""


def draw(choice: str, rows: int, length: int, seed: int = 9) -> tuple[Task, Batch]:
    task = TASKS.choose(choice).build()
    return task, task.sample(torch.Generator().manual_seed(seed), rows, length)


def guesses(batch: Batch, says: Callable[[list[int], int], int]) -> float:
    """The score of a baseline that says its answer outright, on tasks per token."""
    right = asked = 0
    for row, targets, scored in zip(batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True):
        for place in (place for place, counts in enumerate(scored) if counts):
            right += says(row, place) == targets[place]
            asked += 1
    return right / asked


def looked_up(batch: Batch, knows: Baseline) -> float:
    """The score of a baseline that learns, from the first half of the rows, what to answer to what it knows."""
    cases: list[list[tuple[Hashable, int]]] = []
    for row, inputs in enumerate(batch.inputs.tolist()):
        if batch.targets.ndim == 1:
            cases.append([(knows(inputs, len(inputs) - 1), int(batch.targets[row]))])
            continue
        targets, scored = batch.targets[row].tolist(), batch.scored[row].tolist()
        cases.append([(knows(inputs, place), targets[place]) for place in range(len(inputs)) if scored[place]])
    half = len(cases) // 2
    table: dict[Hashable, Counter[int]] = defaultdict(Counter)
    for row in cases[:half]:
        for known, answer in row:
            table[known][answer] += 1
    guesses_and_answers = [(table[known].most_common(1), answer) for row in cases[half:] for known, answer in row]
    return sum(bool(best) and best[0][0] == answer for best, answer in guesses_and_answers) / len(guesses_and_answers)


def commonest(letters: list[int]) -> int:
    counts = Counter(letters)
    return min(counts, key=lambda letter: (-counts[letter], letter))


def measured_baselines(task: Task, length: int, first: int = 0) -> dict[str, float]:
    """Accuracy of the shortcuts that the task declares, by name."""
    scores = search(task, length, first, samples=8000, classes=("majority", "declared"))
    return {score.name: score.accuracy for score in scores}


def test_k_back_recall_commonest_so_far() -> None:
    task, batch = draw("k_back_recall", 400, 32)
    baseline = measured_baselines(task, 32)["most frequent symbol so far"]
    assert guesses(batch, lambda row, place: commonest(row[:place])) == pytest.approx(baseline, abs=0.012)
    assert baseline == pytest.approx(0.21, abs=0.02)
    assert measured_baselines(task, 64, first=32)["most frequent symbol so far"] < baseline


def test_modular_sum_copies() -> None:
    task, batch = draw("modular_sum", 3000, 20)
    baseline = measured_baselines(task, 20)["copy of the previous number"]
    assert guesses(batch, lambda row, place: row[place - 1]) == pytest.approx(baseline, abs=0.006)
    ood_accuracy = (batch.targets[:, 10:] == batch.inputs[:, 9:-1]).float().mean().item()
    assert ood_accuracy == pytest.approx(
        measured_baselines(task, 20, first=10)["copy of the previous number"], abs=0.006
    )


def test_marker_distance() -> None:
    task, batch = draw("marker_distance:unit=16", 40_000, 20)
    counts = Counter((batch.targets * 16).round().int().flatten().tolist())
    assert max(counts.values()) / 40_000 == pytest.approx(
        measured_baselines(task, 20)["the most frequent answer"], abs=0.006
    )
    assert task.correct(batch.targets + 0.4 / 16, batch.targets).all()
    assert not task.correct(batch.targets + 0.6 / 16, batch.targets).any()


@pytest.mark.parametrize("k", [1, 3, 6])
def test_k_back_windows(k: int) -> None:
    task, batch = draw(f"k_back:k={k}", 500, 32)
    baselines = measured_baselines(task, 32)

    def within(window: int) -> Baseline:
        return lambda row, place: row[max(0, place - window) : place].count(row[place])

    whole = looked_up(batch, within(32))
    assert whole == pytest.approx(baselines["how often the symbol occurred before"], abs=0.02)
    for window in {k, 2 * k} - {1}:
        name = f"how often in the last {window} places"
        assert looked_up(batch, within(window)) == pytest.approx(baselines[name], abs=0.03)
    listed = max(baselines.values())
    for window in {k - 1, k + 1, k + 2, 2 * k + 3} - {0}:
        assert looked_up(batch, within(window)) < listed + 0.03, f"a window of {window} is a better shortcut"


def test_long_range_match_gives_nothing_to_counts() -> None:
    """Whatever can be said of the symbols without their places has the same distribution under both answers."""
    task, batch = draw("long_range_match", 60_000, 12)
    last = batch.inputs[:, -1:]
    occurrences = (batch.inputs[:, :-1] == last).sum(1)
    yes, no = occurrences[batch.targets == 1], occurrences[batch.targets == 0]
    assert occurrences.min() >= 1, "never having been seen would give the answer away"
    for count in range(1, 5):
        shares = [(of == count).float().mean().item() for of in (yes, no)]
        error = math.sqrt(shares[0] * (1 - shares[0]) * (1 / len(yes) + 1 / len(no)))
        assert abs(shares[0] - shares[1]) < 3 * error
    assert batch.targets.float().mean().item() == pytest.approx(0.5, abs=3 * 0.5 / math.sqrt(60_000))
    baselines = measured_baselines(task, 12)
    assert baselines["the last symbol occurred earlier"] == pytest.approx(0.5, abs=0.02)
    assert baselines["how often it occurred"] == pytest.approx(0.5, abs=0.02)


def test_long_range_match_parts() -> None:
    task, batch = draw("long_range_match", 10_000, 12)
    baselines = measured_baselines(task, 12)
    recent = looked_up(batch, lambda row, place: row[6:place].count(row[place]))
    assert recent == pytest.approx(baselines["how often it occurred in the recent half"], abs=0.02)
    middle = looked_up(batch, lambda row, place: row[1:place].count(row[place]))
    assert middle == pytest.approx(baselines["how often it occurred in the middle"], abs=0.02)


def question_and_answers(row: list[int], place: int, separator: int) -> tuple[list[int], list[int]]:
    cut = row.index(separator)
    return row[:cut], row[cut + 1 : place + 1]


@pytest.mark.parametrize(
    "choice", ["copy", "copy:letters=3", "reverse", "repeat_copy", "repeat_copy:times=2,letters=4"]
)
@pytest.mark.parametrize("length", [2, 16])
def test_induction(choice: str, length: int) -> None:
    """The letter that came next where the previous one stood in the question."""
    task, batch = draw(choice, 500, length)
    letters = task.outputs
    baselines = measured_baselines(task, length)
    word = "stood before" if choice == "reverse" else "followed"

    def next_after(row: list[int], place: int) -> Hashable:
        question, given = question_and_answers(row, place, letters)
        shown = question[::-1] if choice == "reverse" else question
        shown = shown + shown[:1] if choice.startswith("repeat") else shown
        places = [end for end in range(1, len(shown)) if given and shown[end - 1] == given[-1]]
        return shown[places[-1]] if places else None

    known = looked_up(batch, next_after)
    assert known == pytest.approx(baselines[f"what {word} the previous letter in the question"], abs=0.03)


@pytest.mark.parametrize("choice", ["copy", "reverse", "repeat_copy:letters=4"])
def test_what_a_bag_of_the_question_tells(choice: str) -> None:
    task, batch = draw(choice, 500, 16)
    letters, baselines = task.outputs, measured_baselines(task, 16)

    def all_in_all(row: list[int], _: int) -> Hashable:
        return commonest(row[:16])

    def still_missing(row: list[int], place: int) -> Hashable:
        question, given = question_and_answers(row, place, letters)
        left = Counter(question) - Counter(given[len(given) // 16 * 16 :])
        return commonest(list(left.elements()))

    assert looked_up(batch, all_in_all) == pytest.approx(baselines["the commonest letter of the question"], abs=0.02)
    missing = baselines["the commonest letter that is still missing"]
    assert looked_up(batch, still_missing) == pytest.approx(missing, abs=0.02)


@pytest.mark.parametrize("choice", ["copy", "reverse", "repeat_copy:letters=4"])
def test_pairs_that_are_still_unused(choice: str) -> None:
    """What follows the previous letter most often in the question, each pair used once per round."""
    task, batch = draw(choice, 500, 16)
    baselines = measured_baselines(task, 16)
    right = total = 0
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        question, answer = row[:16], targets[16:]
        shown = question[::-1] if choice == "reverse" else question
        shown = shown + shown[:1] if choice.startswith("repeat") else shown
        for place, letter in enumerate(answer):
            if (place - 1) % (len(shown) - 1) == 0 or place == 0:
                left = Counter(itertools.pairwise(shown))
            if place == 0:
                guess = shown[0]
            else:
                followers = {b: n for (a, b), n in left.items() if a == answer[place - 1]}
                guess = min(followers, key=lambda b: (-followers[b], b), default=0)
                left[answer[place - 1], letter] -= 1
            right, total = right + (guess == letter), total + 1
    unused = next(name for name in baselines if "unused" in name)
    assert right / total == pytest.approx(baselines[unused], abs=0.025)


def test_the_commonest_of_the_last_k() -> None:
    task, batch = draw("k_back_recall", 500, 32)
    known = looked_up(batch, lambda row, place: commonest(row[place - 3 : place]))
    assert known == pytest.approx(measured_baselines(task, 32)["the commonest of the last 3"], abs=0.02)


@pytest.mark.parametrize("name", ["copy", "reverse", "repeat_copy"])
def test_without_fed_answers_content_does_not_help(name: str) -> None:
    baselines = measured_baselines(TASKS.choose(f"{name}:answers=blank").build(), 16)
    assert max(baselines.values()) < 0.3


def test_sort_from_what_occurs() -> None:
    task, batch = draw("sort", 1200, 16)
    baselines = measured_baselines(task, 16)
    assert looked_up(batch, lambda _, place: place) == pytest.approx(baselines["the place in the answer"], abs=0.02)
    both = looked_up(batch, lambda row, place: (place, row[place]))
    assert both == pytest.approx(baselines["the place and the previous answer"], abs=0.02)

    def occurring(row: list[int], place: int) -> Hashable:
        previous = -1 if row[place] == 16 else row[place]
        return previous, min((letter for letter in row[:16] if letter > previous), default=None)

    name = "the previous answer and the next letter that occurs"
    assert looked_up(batch, occurring) == pytest.approx(baselines[name], abs=0.02)


def test_sort_needs_no_places() -> None:
    """It is the control: the question in any other order has the same answer."""
    task, batch = draw("sort", 50, 16)
    shuffled = batch.inputs.clone()
    shuffled[:, :16] = shuffled[:, :16][:, torch.randperm(16, generator=torch.Generator().manual_seed(0))]
    for row, other in zip(batch.inputs.tolist(), shuffled.tolist(), strict=True):
        assert task.solve(row) == task.solve(other)


@pytest.mark.parametrize("name", ["parity", "even_pairs"])
def test_bits(name: str) -> None:
    task, batch = draw(name, 8000, 32)
    baselines, error = measured_baselines(task, 32), 0.5 / math.sqrt(4000)
    for knows in (
        lambda row, _: tuple(row[:8]),
        lambda row, _: tuple(row[-8:]),
        lambda row, _: sum(row[:-1]),
        lambda row, _: sum(row[1:-1]) % 2,
    ):
        assert looked_up(batch, knows) < max(baselines.values()) + 3 * error

    def changes(row: list[int], _: int) -> int:
        return sum(one != two for one, two in itertools.pairwise(row)) // 2

    if name == "parity":
        rough = looked_up(batch, lambda row, _: sum(row) // 2)
        assert rough == pytest.approx(baselines["the number of ones, give or take one"], abs=0.025)
    else:
        rough = looked_up(batch, changes)
        assert rough == pytest.approx(baselines["the number of such pairs, give or take one"], abs=0.025)
        bag = looked_up(batch, lambda row, place: (row[place], sum(row)))
        assert bag == pytest.approx(baselines["how often the last bit occurred"], abs=0.025)


def test_modular_arithmetic_needs_precedence_and_signs() -> None:
    task, batch = draw("modular_arithmetic", 5000, 5)
    baselines = measured_baselines(task, 5)
    plus, minus, times = 5, 6, 7
    work: dict[int, Callable[[int, int], int]] = {
        plus: lambda a, b: a + b,
        minus: lambda a, b: a - b,
        times: lambda a, b: a * b,
    }

    def left_to_right(row: list[int], _: int) -> int:
        value = row[0]
        for place in range(1, len(row) - 1, 2):
            value = work[row[place]](value, row[place + 1])
        return value % 5

    assert looked_up(batch, left_to_right) == pytest.approx(baselines["strictly from left to right"], abs=0.03)
    assert looked_up(batch, left_to_right) > 0.4, "short expressions are often right that way"
    assert measured_baselines(TASKS.choose("modular_arithmetic").build(), 16)["strictly from left to right"] < 0.25
    bag = looked_up(batch, lambda row, _: tuple(sorted(row)))
    assert bag < max(baselines.values())


def test_modular_arithmetic_against_python() -> None:
    """Its own precedence: the expression as text, by Python's own parser of numbers and signs."""
    task, batch = draw("modular_arithmetic:base=7", 200, 9)
    spelling = [*map(str, range(7)), "+", "-", "*", ""]
    for row, answer in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert eval("".join(spelling[symbol] for symbol in row)) % 7 == answer == task.solve(row)[0]


def test_associative_recall() -> None:
    task, batch = draw("associative_recall", 1000, 8)
    baselines = measured_baselines(task, 8)
    values = slice(1, 16, 2)
    shown = looked_up(batch, lambda row, _: commonest(row[values]))
    assert shown == pytest.approx(baselines["the commonest value shown"], abs=0.025)
    latest = guesses(batch, lambda row, _: row[15] - 64)
    assert latest == pytest.approx(baselines["the latest value shown"], abs=0.02)
    for turn in range(8):
        other = guesses(batch, lambda row, place, turn=turn: row[values][(place - 16 + turn) % 8] - 64)
        assert other == pytest.approx(1 / 8 + 7 / 8 / 16, abs=0.02), "places of questions and pairs are independent"


@pytest.mark.parametrize("length", [4, 18, 40])
def test_needle_is_not_found_by_counting_or_by_place(length: int) -> None:
    """A blind pick from the heap is right as often as its letter is in it. Nothing without the marker is better."""
    task, batch = draw("needle", 5000, length)
    heap = length - 2
    pick = max(1 / 16, math.ceil(heap / 16) / heap)
    without = Batch(batch.inputs[batch.inputs != 16].reshape(5000, heap), batch.positions, batch.targets, batch.scored)
    for knows in (
        lambda row, _: commonest(row),
        lambda row, _: commonest(row[heap // 2 :]),
        lambda row, _: Counter(row).most_common()[-1],
        *(lambda row, _, place=place: row[place] for place in {0, heap // 2, heap - 1}),
    ):
        assert looked_up(without, knows) <= pick + 3 * math.sqrt(pick * (1 - pick) / 2500)
    baselines = measured_baselines(task, length)
    near_the_marker = baselines.pop("the commonest of the four letters after the marker")
    assert max(baselines.values()) <= pick + 0.05
    assert length < 5 or near_the_marker <= 0.4, "one of the four, whichever it is"


def test_needle_stands_anywhere() -> None:
    _, batch = draw("needle", 20_000, 12)
    marked = Counter((batch.inputs == 16).int().argmax(1).tolist())
    assert set(marked) == set(range(10))
    assert min(marked.values()) > 0.85 * 2000
