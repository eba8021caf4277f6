"""Features against definitions in plain Python, and predictors on cases worked by hand."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch

from whence.shortcuts import columns, keys
from whence.shortcuts.answers import Answers, draw
from whence.shortcuts.classes import CLASSES
from whence.shortcuts.fit import HIDDEN_UNITS, look_up, pick_place, train
from whence.tasks import TASKS


def some(choice: str, length: int = 12, count: int = 40, first: int = 0) -> Answers:
    return draw(TASKS.choose(choice).build(), length, first=first, count=count, seed=3)


def seen(answers: Answers) -> list[list[int]]:
    """The visible tokens of each answer."""
    pairs = zip(answers.tokens.tolist(), answers.place.tolist(), strict=True)
    return [tokens[: place + 1] for tokens, place in pairs]


@pytest.mark.parametrize("choice", ["k_back_recall", "long_range_match", "copy", "marker_distance"])
def test_columns_are_what_they_are_called(choice: str) -> None:
    answers = some(choice, 16)
    symbols = answers.task.symbols
    counts, pairs, skips = (
        f(answers) for f in (columns.symbol_counts, columns.bigram_counts, columns.skip_pair_counts)
    )
    beside, sums, order = columns.beside_last(1)(answers), columns.centroids(answers), columns.pairwise_order(answers)
    quarters, last, variety = columns.region_counts(answers), columns.last_symbol(answers), columns.variety(answers)
    for row, tokens in enumerate(seen(answers)):
        assert counts[row].tolist() == [tokens.count(s) for s in range(symbols)]
        expected = Counter(itertools.pairwise(tokens))
        assert pairs[row].tolist() == [expected[a, b] for a in range(symbols) for b in range(symbols)]
        expected = Counter(zip(tokens, tokens[2:], strict=False))
        assert skips[row].tolist() == [expected[a, b] for a in range(symbols) for b in range(symbols)]
        before = Counter(a for a, b in itertools.pairwise(tokens) if b == tokens[-1])
        behind = Counter(b for a, b in itertools.pairwise(tokens) if a == tokens[-1])
        assert beside[row].tolist() == [side[s] for side in (before, behind) for s in range(symbols)]
        positions = [sum(place for place, token in enumerate(tokens) if token == s) for s in range(symbols)]
        assert (sums[row] * answers.length).tolist() == pytest.approx(positions, abs=1e-4)
        expected = Counter(itertools.combinations(tokens, 2))
        assert order[row, : symbols**2].tolist() == [expected[a, b] for a in range(symbols) for b in range(symbols)]
        where = [4 * place // len(tokens) for place in range(len(tokens))]
        expected = Counter(zip(tokens, where, strict=True))
        assert quarters[row].tolist() == [expected[s, q] for s in range(symbols) for q in range(4)]
        assert last[row, 4] == tokens[:-1].count(tokens[-1])
        most = sorted(Counter(tokens).values(), reverse=True)
        assert variety[row].tolist() == [len(most), *[*most, 0][:2]]


@pytest.mark.parametrize("choice", ["k_back_recall", "modular_sum", "copy", "own_position"])
def test_tokens_behind_the_answer_are_not_visible(choice: str) -> None:
    """Features see the tokens of the answers alone; seeing further would raise baselines for no reason."""
    answers = some(choice, 16)
    behind = torch.arange(answers.length) > answers.place[:, None]
    assert behind.any()
    assert torch.equal(answers.tokens == answers.blank, behind)


@pytest.mark.parametrize("choice", ["k_back_recall", "copy", "own_position", "long_range_match:ask=location"])
def test_features_do_not_depend_on_the_sample(choice: str) -> None:
    """Tables and models are fitted on one sample and applied to another."""
    whole = some(choice, 24, count=200)
    few = whole[3:6]
    for features in CLASSES.values():
        functions = [*features.columns.values(), *features.keys, *features.places]
        for function in functions:
            large, small = function(whole), function(few)
            if isinstance(large, torch.Tensor):
                large, small = {"columns": large}, {"columns": small}
            assert list(large) == list(small)
            for name, feature in small.items():
                assert torch.equal(feature, large[name][3:6]), name


def test_answers_are_those_that_count() -> None:
    answers = some("k_back_recall", 16, count=4000, first=8)
    assert set(answers.place.tolist()) == set(range(8, 16))
    task = answers.task
    for tokens, target in zip(seen(answers)[:50], answers.targets.tolist()[:50], strict=True):
        assert task.solve(tokens)[-1] == target
    assert answers.sequence.bincount().tolist() == [4] * 1000


def test_windows_end_where_the_task_says() -> None:
    answers = some("k_back_recall:k=3", 20)
    assert columns.window(answers) == 2
    for row, tokens in enumerate(seen(answers)):
        expected = [*reversed(tokens[-3:])]
        got = columns.last_tokens(answers)[row].reshape(3, -1).int().argmax(1).tolist()
        assert got == expected
    assert not any((f == answers.targets).all() for f in keys.last_token_keys(answers).values())
    assert not any((f == answers.targets).all() for f in keys.window_sum_keys(answers).values())
    assert columns.tokens_beyond_window(answers).shape[1] == 9 * 16


def test_window_sums_are_of_the_last_tokens() -> None:
    answers = some("modular_sum", 16)
    actual = keys.window_sum_keys(answers)
    for row, tokens in enumerate(seen(answers)):
        assert actual["the sum of the last 4 tokens, modulo 10"][row] == sum(tokens[-4:]) % 10
        assert actual["the sum of the 8 tokens before this one, modulo 10"][row] == sum(tokens[-9:-1]) % 10


@pytest.mark.parametrize(("choice", "backwards"), [("copy", False), ("repeat_copy", False), ("reverse", True)])
@pytest.mark.parametrize("longest", [1, 3])
def test_suffixes_are_continued(choice: str, backwards: bool, longest: int) -> None:
    answers = some(choice, 12, 200)
    way = "read backwards" if backwards else "read forwards"
    actual = keys.suffix_keys(answers)[f"continuation of the longest suffix of at most {longest}, {way}"]
    for row, tokens in enumerate(seen(answers)):
        expected = answers.blank
        for depth in range(1, longest + 1):
            suffix = tokens[-depth:][::-1] if backwards else tokens[-depth:]
            for start in range(len(tokens) - depth):
                follows = start - 1 if backwards else start + depth
                if tokens[start : start + depth] != suffix or not 0 <= follows < len(tokens):
                    continue
                if (start + depth - 1 < len(tokens) - 1) and tokens[follows] < answers.task.outputs:
                    expected = tokens[follows]
        assert actual[row] == expected, (tokens, depth)


def test_neighbours_of_positions() -> None:
    answers = some("long_range_match:ask=location")
    actual = keys.place_neighbours(0, 2)(answers)["the symbols at -1, +1 from the position"]
    base = answers.blank + 1
    for row, tokens in enumerate(answers.tokens.tolist()):
        padded = [answers.blank, *tokens, answers.blank]
        assert actual[row].tolist() == [padded[at] * base + padded[at + 2] for at in range(len(tokens))]
    repeats = keys.place_repeats(answers)["how often the symbol at the position occurs"]
    assert repeats[0].tolist() == [answers.tokens[0].tolist().count(token) for token in answers.tokens[0].tolist()]


def test_look_up_learns_on_one_sample_and_predicts_another() -> None:
    known, targets = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([4, 4, 5, 5, 4, 4])
    assert look_up(known, targets, torch.tensor([0, 1, 2, 7])).tolist() == [4, 5, 4, 4]  # 7 was never seen
    many = torch.arange(4000)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (8000,), generator=generator)
    right = look_up(many, labels[:4000], many + 4000) == labels[4000:]
    assert right.double().mean().item() == pytest.approx(0.5, abs=0.05), "a table of single cases predicts nothing"


def test_places_are_picked_by_rate() -> None:
    known = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    targets = torch.tensor([[1], [0]])
    new = torch.tensor([[2, 0, 1, 1], [0, 0, 2, 2]])
    assert pick_place(known, targets, new, latest=False).tolist() == [[2], [0]]
    assert pick_place(known, targets, new, latest=True).tolist() == [[3], [3]]


def test_models_fit_what_they_can() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 3, generator=generator)
    linear, curved = (x @ torch.tensor([1.0, -2.0, 0.5]) > 0).long(), (x[:, 0] * x[:, 1] > 0).long()
    cases = ((linear, 0, 0.97, 1), (curved, 0, 0.4, 0.6), (curved, HIDDEN_UNITS, 0.93, 1))
    for targets, hidden_units, low, high in cases:
        predict = train(x[:2000], targets[:2000], 2, hidden_units=hidden_units)
        assert low <= (predict(x[2000:]).argmax(1) == targets[2000:]).double().mean().item() <= high
    amount = (x @ torch.tensor([[1.0], [3.0], [0.0]])) * 40 + 7
    predict = train(x[:2000], amount[:2000], 1)
    assert (predict(x[2000:]) - amount[2000:]).abs().mean() < 1
