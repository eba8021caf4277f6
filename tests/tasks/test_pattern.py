"""Pattern detection requires triples: predictors on symbols and pairs stay at the baseline of the easy sequences."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from whence.shortcuts.search import best, search
from whence.tasks import TASKS
from whence.tasks.shift_invariant_pattern import DETECTION, EASY, LOCATION, REVERSED

Features = NDArray[np.float32]
SEQUENCES = 20_000
BASELINE = 0.55
LENGTHS = [32, 64, 128, pytest.param(48, marks=pytest.mark.slow)]
SUMMARIES = ["counts", "centroids", "bigrams", "skip-pairs", "order", "ends"]


def draw(
    length: int, options: str = "ask=detection", sequences: int = SEQUENCES
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    task = TASKS.choose(f"shift_invariant_pattern:{options}").build()
    batch = task.sample(torch.Generator().manual_seed(length), sequences, length)
    return batch.inputs.numpy(), batch.targets.numpy()


def n_grams(ones: Features, *gaps: int) -> Features:
    """Count every pair or triple of symbols at the given distances."""
    length = ones.shape[1] - sum(gaps)
    counts = ones[:, :length]
    for offset in np.cumsum(gaps):
        counts = np.einsum("nl...,nlb->nl...b", counts, ones[:, offset : offset + length])
    return counts.sum(1).reshape(len(ones), -1)


def features(inputs: NDArray[np.int64], name: str) -> Features:
    """Compute a summary of each sequence. All fillers count as one symbol, except in the bag of tokens."""
    length = inputs.shape[1]
    ones: Features = np.eye(4, dtype=np.float32)[np.minimum(inputs, 3)]
    marks, counts = ones[..., :3], ones.sum(1)
    if name == "counts":
        return np.eye(15, dtype=np.float32)[inputs].sum(1)
    if name == "centroids":
        sums = np.einsum("nls,l->ns", ones, np.arange(length, dtype=np.float32))
        return np.concatenate([counts, sums, sums / length, sums / np.maximum(counts, 1) / length], 1)
    if name == "one-hots":
        return np.eye(15, dtype=np.float32)[inputs].reshape(len(inputs), -1)
    if name == "ends":
        return np.eye(15, dtype=np.float32)[np.concatenate([inputs[:, :4], inputs[:, -4:]], 1)].reshape(len(inputs), -1)
    if name == "bigrams":
        return n_grams(ones, 1)
    if name == "skip-pairs":
        return np.concatenate([n_grams(ones, gap) for gap in (1, 2, 3, 4)], 1)
    if name == "order":
        return np.einsum("nla,nlb->nab", ones.cumsum(1) - ones, ones).reshape(len(inputs), -1)
    if name == "trigrams":
        return n_grams(ones, 1, 1)
    assert name == "unordered triples"
    ordered = n_grams(marks, 1, 1).reshape(-1, 3, 3, 3)
    sets = {tuple(sorted(triple)) for triple in itertools.product(range(3), repeat=3)}
    counted = [sum(ordered[:, a, b, c] for a, b, c in set(itertools.permutations(bag))) for bag in sorted(sets)]
    return np.concatenate([np.stack(counted, 1), n_grams(ones, 1)], 1)


def held_out_accuracy(model: str, values: Features, labels: NDArray[np.int64]) -> float:
    """Fit on the first half of the sequences and score on the second."""
    models = {
        "linear": lambda: LogisticRegression(max_iter=100),
        "mlp": lambda: MLPClassifier((32,), max_iter=15, random_state=0),
        "trees": lambda: HistGradientBoostingClassifier(max_iter=50, random_state=0),
    }
    half = len(values) // 2
    pipeline = make_pipeline(StandardScaler(), models[model]())
    return float(pipeline.fit(values[:half], labels[:half]).score(values[half:], labels[half:]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", [*SUMMARIES, "one-hots"])
def test_predictors_without_triples_stay_at_the_baseline(name: str, length: int) -> None:
    inputs, labels = draw(length)
    values = features(inputs, name)
    for model in ("linear",) if name == "one-hots" else ("linear", "mlp"):
        assert held_out_accuracy(model, values, labels) <= BASELINE, model


@pytest.mark.slow
@pytest.mark.parametrize("length", [32, 48, 64, 128])
@pytest.mark.parametrize("name", SUMMARIES)
def test_boosted_trees_on_summaries_stay_at_the_baseline(name: str, length: int) -> None:
    inputs, labels = draw(length)
    assert held_out_accuracy("trees", features(inputs, name), labels) <= BASELINE


@pytest.mark.parametrize("length", LENGTHS)
def test_trigram_counts_solve_detection(length: int) -> None:
    inputs, labels = draw(length)
    assert held_out_accuracy("linear", features(inputs, "trigrams"), labels) >= 0.99


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_unordered_triples_determine_the_label_only_with_ordered_pairs() -> None:
    """As the docstring of the task states: no linear function of them does, a nonlinear one does."""
    inputs, labels = draw(32)
    values = features(inputs, "unordered triples")
    assert held_out_accuracy("linear", values, labels) <= BASELINE
    assert held_out_accuracy("mlp", values, labels) >= 0.95


def test_pairs_suffice_in_the_stated_share_of_sequences() -> None:
    """Easy sequences are the only ones with four patterns, or with no group from the list of either label."""
    inputs, labels = draw(64)
    text = ["".join("abc."[min(symbol, 3)] for symbol in row) for row in inputs.tolist()]
    easy = np.array([row.count("abc") == 4 for row in text])
    assert (labels[easy] == 1).all()
    assert easy.mean() == pytest.approx(EASY / 2, abs=0.004)
    reverse = ["".join("abc"[symbol] for symbol in triple) for triple in REVERSED]
    negative = np.array([sum(map(row.count, reverse)) >= 4 for row in text]) & (labels == 0)
    assert negative.mean() == pytest.approx(EASY / 2, abs=0.004)
    assert labels.mean() == pytest.approx(0.5, abs=0.01)


def test_the_check_finds_the_shortcut_of_the_reversed_pattern() -> None:
    """The original construction is solved by centroids and by bigrams, and is not ranked."""
    task = TASKS.choose("reversed_pattern").build()
    batch = task.sample(torch.Generator().manual_seed(0), SEQUENCES, 32)
    inputs, labels = batch.inputs.numpy(), batch.targets.numpy()
    for name in ("centroids", "bigrams"):
        assert held_out_accuracy("linear", features(inputs, name), labels) >= 0.99
    assert not task.ranked
    for options in ("", "ask=location", "pattern=4,slack=3", "ask=location,pattern=2"):
        other = TASKS.choose(f"reversed_pattern:{options}").build()
        assert best(search(other, 32, samples=1000, classes=("majority", "declared"))).accuracy > 0.99


@pytest.mark.parametrize("length", [32, 33, 48, 128])
def test_labels_agree_with_a_regular_expression(length: int) -> None:
    for options in ("ask=detection", "ask=location", "ask=detection,others=1", "ask=location,others=1"):
        inputs, targets = draw(length, options, sequences=500)
        task = TASKS.choose(f"shift_invariant_pattern:{options}").build()
        for row, target in zip(inputs.tolist(), targets.reshape(-1).tolist(), strict=True):
            starts = [match.start() for match in re.finditer("abc", "".join(chr(ord("a") + symbol) for symbol in row))]
            assert len(starts) <= (1 if "location" in options else 4)
            assert target == (starts[0] if "location" in options else bool(starts))
            assert task.solve(row) == [target]


def test_groups_of_both_labels_agree_in_single_slots_and_pairs_of_slots() -> None:
    """Exact, for each variant."""
    assert DETECTION.shape == (2, 2, 4, 3)
    for negative, positive in DETECTION.tolist():
        for slots in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
            counts = [
                Counter(tuple(group[slot] for slot in slots) for group in groups) for groups in (negative, positive)
            ]
            assert counts[0] == counts[1], slots
        assert positive.count([0, 1, 2]) == 1
        assert negative.count([0, 1, 2]) == 0
    assert {tuple(groups.flatten().bincount().tolist()) for groups in DETECTION.flatten(0, 1)} == {(4, 4, 4)}


def test_reversed_groups_share_no_pair_with_the_pattern() -> None:
    for triple in REVERSED:
        for left, right in ((0, 1), (1, 2), (0, 2)):
            pairs = {(triple[i], triple[i + right - left]) for i in range(3 - right + left)}
            assert (left, right) not in pairs


def test_the_background_and_the_layout_do_not_depend_on_the_label() -> None:
    """Equal generators give sequences that differ in the groups alone."""
    task = TASKS.choose("shift_invariant_pattern:ask=detection").build()
    assert hasattr(task, "_write")
    written = [
        task._write(
            torch.Generator().manual_seed(0),
            DETECTION[0, label].expand(2000, 4, 3),
            40,
            density=0.4,
            spacing=3,
            margin=2,
        )
        for label in (0, 1)
    ]
    (one, starts), (two, same) = written
    assert torch.equal(starts, same)
    places = (starts[..., None] + torch.arange(3)).flatten(1)
    assert torch.equal(one.scatter(1, places, 0), two.scatter(1, places, 0))
    around = torch.cat([starts - 1, starts + 3], 1)
    assert (one.gather(1, around) >= 3).all(), "a filler on either side of each group"
    assert starts.unique().tolist() == list(range(2, 36)), "groups start anywhere but in the margins"
    assert starts.sort(1).values.diff(dim=1).min() == 6, "three tokens between two groups"


def test_location_is_not_found_from_two_of_three_slots() -> None:
    """Candidates that agree with the pattern in part. Ties are broken at random, or with the help of the fillers."""
    for length in (32, 64):
        inputs, targets = draw(length, "ask=location")
        a, b, c = (inputs == symbol for symbol in range(3))
        marked = np.pad(inputs < 3, ((0, 0), (1, 1)))
        group = marked[:, 1:-3] & marked[:, 2:-2] & marked[:, 3:-1] & ~marked[:, :-4] & ~marked[:, 4:]
        first, second, third = (slice(None), slice(-2)), (slice(None), slice(1, -1)), (slice(None), slice(2, None))
        different = (
            (inputs[first] != inputs[second]) & (inputs[second] != inputs[third]) & (inputs[first] != inputs[third])
        )
        agrees = {
            "A B": a[first] & b[second],
            "B C": b[second] & c[third],
            "A ? C": a[first] & c[third],
            "A, B and C in any order": different & marked[:, 1:-3] & marked[:, 2:-2] & marked[:, 3:-1],
        }
        agrees |= {
            f"{symbol} in its slot, the others in any order": agrees["A, B and C in any order"] & slot
            for symbol, slot in (("A", a[first]), ("B", b[second]), ("C", c[third]))
        }
        agrees |= {f"{name}, between fillers": candidates & group for name, candidates in agrees.items()}
        for name, candidates in agrees.items():
            assert candidates[np.arange(len(inputs)), targets[:, 0]].all(), name
            assert (1 / candidates.sum(1)).mean() <= 0.5, name
            for pick in (candidates.argmax(1), candidates.shape[1] - 1 - candidates[:, ::-1].argmax(1)):
                assert (pick == targets[:, 0]).mean() <= 0.52, name
    assert LOCATION.shape == (8, 7, 3)


def test_location_floors_are_low() -> None:
    task = TASKS.choose("shift_invariant_pattern:ask=location").build()
    for length in (32, 64, 128):
        assert best(search(task, length, samples=5000, classes=("majority", "declared", "bigrams"))).accuracy <= 0.53


def test_versions() -> None:
    assert TASKS["shift_invariant_pattern"].version == 4
    assert TASKS["reversed_pattern"].version == 1
    assert TASKS["shift_invariant_pattern"].ranked
