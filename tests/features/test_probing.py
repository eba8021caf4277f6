"""Sparse probing: what was planted is found, what was not is not, and the tested half is never looked at before."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.features.stored import flip
from tests.features.synthetic import Reader, sequences
from whence.errors import UserError
from whence.features.activations.labelled import DEFAULT_SETS, labelled_activations, once, split
from whence.features.activations.sequences import SequenceActivations, SequenceNotes, activations_at
from whence.features.activations.sources import of_text
from whence.features.activations.store import CONTENT, ActivationSite
from whence.features.activations.text import held_out, labelled, packaged_texts, sets
from whence.features.config import CollectConfig
from whence.features.evals.probing import (
    ProbeTask,
    Units,
    accuracy,
    chosen,
    fit_logistic,
    pool,
    predict,
    probe,
    probe_by_position,
    sparse,
)
from whence.models.pretrained import pretrained
from whence.store.runs import Store
from whence.store.verify import verify_store

WIDTH = 60


def texts(classes: int = 2, rows: int = 300, lengths: tuple[int, int] = (6, 14)) -> SequenceActivations:
    random = torch.Generator().manual_seed(1)
    label = torch.arange(rows) % classes
    test = torch.rand(rows, generator=random) < 0.3
    length = torch.randint(*lengths, (rows,), generator=random)
    notes = SequenceNotes(set="synthetic", classes=tuple([f"class {index}" for index in range(classes)]))
    return sequences(length, WIDTH, {"label": label, "test": test}, notes)


def with_feature(found: SequenceActivations, label: int, feature: int, at: Tensor | None = None) -> SequenceActivations:
    """One class has a feature at every token, or at some."""
    there = found.about["label"][found.rows] == label
    activations = found.activations.clone()
    activations[there if at is None else there & at, feature] = 40
    return dataclasses.replace(found, activations=activations)


# --- logistic regression


@pytest.mark.parametrize(("rows", "d_in", "scale", "apart"), [(200, 3, 1, 1), (60, 20, 5, 0), (100, 2, 30, 9)])
@pytest.mark.parametrize("strength", [1.0, 0.1])
def test_logistic_regression_is_the_optimum(rows: int, d_in: int, scale: float, apart: float, strength: float) -> None:
    """scipy minimises the same objective, written down independently."""
    random = np.random.default_rng(rows)
    x = scale * random.normal(size=(rows, d_in))
    y = random.random(rows) < 0.4
    x[:, 0] += apart * scale * y

    def objective(w: np.ndarray) -> float:
        p = np.logaddexp(0, np.where(y, -1, 1) * (x @ w[:-1] + w[-1]))
        return float(w[:-1] @ w[:-1] / 2 + strength * p.sum())

    best = scipy.optimize.minimize(objective, np.zeros(d_in + 1), method="L-BFGS-B", options={"ftol": 1e-15}, tol=1e-9)
    weights = fit_logistic(torch.from_numpy(x), torch.from_numpy(y), strength)
    assert objective(weights.numpy()) <= best.fun + 1e-9
    np.testing.assert_allclose(weights.numpy(), best.x, atol=2e-3, rtol=2e-3)
    assert np.array_equal(
        predict(weights, torch.from_numpy(x)).numpy(), x @ weights[:-1].numpy() + weights[-1].item() > 0
    )


def test_the_slope_vanishes_where_classes_lie_far_apart() -> None:
    """Autograd's slope of the objective is the oracle."""
    x = torch.cat([torch.full((50, 1), -1e4), torch.full((50, 1), 1e4)]).double()
    y = torch.arange(100) >= 50
    weights = fit_logistic(x, y).requires_grad_()
    logits = x[:, 0] * weights[0] + weights[1]
    loss = weights[0] ** 2 / 2 + torch.nn.functional.binary_cross_entropy_with_logits(
        logits, y.double(), reduction="sum"
    )
    assert torch.autograd.grad(loss, weights)[0].abs().max() < 1e-6


# --- the protocol


def test_a_planted_feature_is_found_and_is_enough() -> None:
    found = with_feature(texts(), label=1, feature=17)
    result = probe({"reader": Reader(WIDTH)}, found)
    one = result.dictionaries["reader"]
    assert one.tasks["class 1"].features[0] == 17
    assert one.k[1] == 1
    assert result.raw.k[1] == 1
    assert result.raw.all == 1
    assert result.majority == 0.5
    assert set(one.tasks) == {"class 1"}, "two classes are one task"


def test_of_many_classes_each_is_told_from_the_others() -> None:
    found = texts(classes=4, rows=600)
    for label in range(4):
        found = with_feature(found, label, feature=10 + label)
    result = probe({"reader": Reader(WIDTH)}, found)
    tasks = result.dictionaries["reader"].tasks
    assert [tasks[f"class {label}"].features[0] for label in range(4)] == [10, 11, 12, 13]
    assert result.dictionaries["reader"].k[1] == 1
    label, test = found.about["label"], found.about["test"]
    assert result.test == {f"class {i}": 2 * int(((label == i) & test).sum()) for i in range(4)}


def test_without_a_difference_everything_is_at_chance() -> None:
    found = texts(rows=1500)
    result = probe({"reader": Reader(WIDTH)}, found)
    low, high = scipy.stats.binom(result.test["class 1"], 0.5).interval(0.9999) / np.array(result.test["class 1"])
    everything = [result.raw, result.dictionaries["reader"], result.dictionaries["reader"].control]
    assert all(low <= value <= high for one in everything for value in one.k.values())
    assert low <= result.raw.all <= high


def noise() -> tuple[Tensor, ProbeTask]:
    random = torch.Generator().manual_seed(3)
    features = torch.rand(200, 2000, generator=random)
    positive = torch.arange(200) % 2 == 0
    return features, ProbeTask("noise", torch.arange(100), torch.arange(100, 200), positive)


def test_the_tested_half_is_not_seen_before_it_is_tested() -> None:
    features, task = noise()
    changed = task.positive.clone()
    changed[task.test] = ~changed[task.test]
    other = features.clone()
    other[task.test] = 0
    best = chosen(features, task, 50)
    assert torch.equal(best, chosen(features, dataclasses.replace(task, positive=changed), 50))
    assert torch.equal(best, chosen(other, task, 50))
    right, wrong = (accuracy(features[:, best], t) for t in (task, dataclasses.replace(task, positive=changed)))
    assert right + wrong == 1, "the same answers, against opposite labels"
    peeked = chosen(features, dataclasses.replace(task, train=torch.arange(200)), 10)
    assert accuracy(features[:, peeked], task) > 0.7, "choosing on all rows would find what is not there"
    assert 0.3 < accuracy(features[:, best[:10]], task) < 0.7


def test_special_tokens_do_not_enter() -> None:
    found = with_feature(texts(), label=1, feature=17)
    activations = found.activations.clone()
    activations[found.flags != CONTENT] = 1e4
    before, after = (
        probe({"reader": Reader(WIDTH)}, one) for one in (found, dataclasses.replace(found, activations=activations))
    )
    assert before == after


def test_pools_are_means_over_the_tokens_of_a_text() -> None:
    found = texts(rows=50)
    units = Units(found.content, found.rows[found.content], 50)
    pooled, active = pool(lambda activations, _: activations.relu(), found, units)
    parts = found.activations.float().relu().split(found.lengths.tolist())
    torch.testing.assert_close(pooled, torch.stack([part[1:-1].mean(0) for part in parts]))
    inner = torch.cat([part[1:-1] for part in parts])
    assert active == pytest.approx(float((inner > 0).sum(1).double().mean()))
    shuffled = torch.randperm(len(units.tokens))
    again, _ = pool(
        lambda activations, _: activations.relu(), found, Units(units.tokens[shuffled], units.unit[shuffled], 50)
    )
    torch.testing.assert_close(again, pooled)


def test_masks_over_positions_can_be_lifted() -> None:
    found = with_feature(texts(), label=1, feature=17)
    masked, mask_off, plain = (
        probe({"one": Reader(WIDTH, masked=kind != "plain")}, found, mask_off=kind == "mask_off").dictionaries["one"]
        for kind in ("masked", "mask_off", "plain")
    )
    assert mask_off == plain
    assert masked.l0 < 0.7 * plain.l0


def test_the_control_is_as_sparse_and_as_large() -> None:
    found = with_feature(texts(), label=1, feature=17)
    one = probe({"reader": Reader(WIDTH)}, found).dictionaries["reader"]
    assert len(one.control.tasks["class 1"].features) == 50
    assert max(one.control.tasks["class 1"].features) < WIDTH
    assert one.control.k[50] > 0.9, "a large difference is seen from anywhere"
    assert one.control == probe({"reader": Reader(WIDTH)}, found).dictionaries["reader"].control


def test_more_features_than_there_are() -> None:
    features, task = noise()
    assert sparse(features[:, :3], [task], (2, 50)).k[50] == accuracy(features[:, :3], task)


# --- by position


def test_what_is_only_late_in_a_text_is_only_found_there() -> None:
    found = texts(rows=600, lengths=(12, 24))
    late = with_feature(found, label=1, feature=17, at=found.positions >= 9)
    result = probe_by_position({"reader": Reader(WIDTH)}, late, ks=(1,), ranges=2)
    early, later = result.ranges
    assert early.first == 1
    assert early.last + 1 == later.first == 9
    assert later.dictionaries["reader"].k[1] == 1
    assert early.dictionaries["reader"].k[1] < 0.65
    assert early.test == later.test
    assert result.texts == int((found.lengths - 1 > later.last).sum()) >= 300


def test_ranges_that_are_too_many() -> None:
    with pytest.raises(UserError, match="ranges"):
        probe_by_position({}, texts(), ranges=50)


def test_a_dictionary_of_other_states() -> None:
    with pytest.raises(UserError, match="expected activations with d_in 61 for 'other'"):
        probe({"other": Reader(WIDTH + 1)}, texts())
    with pytest.raises(UserError, match="positions"):
        probe({"other": Reader(WIDTH, context_size=4)}, texts())


# --- labelled texts of a real model


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


SMALL: dict[str, Any] = {"train": 240, "test": 60}
PLACE = ActivationSite(layer=1, context_size=16)
SET = "113_movie_sent"


@pytest.fixture(scope="module")
def movies(store: Store) -> SequenceActivations:
    return labelled_activations(SET, PLACE, store, **SMALL)


def test_padding_changes_nothing(movies: SequenceActivations) -> None:
    """Every text alone, through the whole model, is the oracle."""
    model, _ = pretrained("minilm")
    starts = movies.lengths.cumsum(0) - movies.lengths
    for row in (0, 20, 150, 299):
        here = slice(int(starts[row]), int(starts[row] + movies.lengths[row]))
        with torch.no_grad():
            whole = model(input_ids=movies.ids[None, here].long(), output_hidden_states=True).hidden_states[1][0]
        torch.testing.assert_close(movies.activations[here].float(), whole, atol=0.03, rtol=0.01)  # bfloat16
    assert len(movies.lengths.unique()) > 5


def test_texts_are_in_one_half_balanced_and_truncated(movies: SequenceActivations) -> None:
    _, tokenizer = pretrained("minilm")
    rows = [tuple(row.tolist()) for row in movies.ids.split(movies.lengths.tolist())]
    assert len(set(rows)) == len(rows) == 300
    assert movies.lengths.max() == 16
    label, test = movies.about["label"], movies.about["test"]
    assert [int((test & (label == kind)).sum()) for kind in (0, 1)] == [30, 30]
    assert [int((~test & (label == kind)).sum()) for kind in (0, 1)] == [120, 120]
    assert movies.notes.unseen == 60, "a tenth of the set is enough to test on documents held out"
    truth: dict[tuple[int, ...], set[tuple[str, bool]]] = {}
    for text, kind in labelled(SET):
        ids = tokenizer(text, truncation=True, max_length=16)["input_ids"]
        truth.setdefault(tuple(ids), set()).add((kind, held_out(text)))
    for row, kind, tested in zip(rows, label.tolist(), test.tolist(), strict=True):
        assert {name for name, _ in truth[row]} == {movies.notes.classes[kind]}
        assert not tested or all(held for _, held in truth[row])


def test_what_has_two_labels_has_none() -> None:
    _, tokenizer = pretrained("minilm")
    rows = [
        ("one two three", "a"),
        ("One two four", "b"),
        ("five six", "a"),
        ("five six", "a"),
        ("", "b"),
        ("x y", "b"),
    ]
    known = once(rows, tokenizer, 2)
    said = {label: [tokenizer.decode(ids) for ids, _ in texts] for label, texts in known.items()}
    assert said == {"a": ["five six"], "b": ["x y"]}, "the first two differ behind the end alone"


def test_states_are_computed_once_and_gone_on_with(store: Store, movies: SequenceActivations) -> None:
    asked = {"set": SET, **SMALL, "seed": 0, "version": packaged_texts()}

    def never(tokenizer: Any) -> Any:
        raise AssertionError("they are there")

    again = activations_at(PLACE, asked, never, store, lambda done, of: None)
    assert torch.equal(again.activations, movies.activations)
    (folder,) = (store.root / "labelled").iterdir()
    shards = sorted(folder.glob("shard-*"))
    assert len(shards) == 2
    before = shards[1].read_bytes()
    shards[1].unlink()
    told: list[tuple[int, int]] = []
    activations_at(PLACE, asked, never, store, lambda done, of: told.append((done, of)))
    assert shards[1].read_bytes() == before
    assert told[-1] == (3, 3)
    assert load_file(shards[0])["activations"].dtype == torch.bfloat16


@pytest.mark.parametrize("what", ["config.json", "parts.json", "rows-*", "shard-*"])
def test_what_is_damaged_is_set_aside_and_computed_again(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    few = labelled_activations(SET, PLACE, store, train=20, test=10)
    (path,) = tmp_path.glob(f"labelled/*/{what}")
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    flip(path, seed=0)
    assert any(problems for _, problems in verify_store(store))
    again = labelled_activations(SET, PLACE, store, train=20, test=10)
    assert torch.equal(again.activations, few.activations)
    assert again.checksum == few.checksum
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    assert len(list(store.damaged.iterdir())) == 1
    assert str(store.damaged) in capsys.readouterr().err


def test_the_place_of_a_collection() -> None:
    assert of_text(CollectConfig(layer=1, context_size=16, tokens=20)).site == PLACE


def test_a_real_label_is_read_from_real_states(movies: SequenceActivations) -> None:
    assert probe({}, movies).raw.all > 0.55


def test_small_and_wrong_sets(store: Store) -> None:
    known = {kind: [((number, index), index < 5) for index in range(25)] for number, kind in enumerate("ab")}
    halves = split(known, "mine", 4000, 1000)
    assert (halves.notes.train, halves.notes.test, halves.notes.unseen) == (40, 10, 10)
    with pytest.raises(UserError, match="expected 2 to 20 labels, got 1"):
        split({"a": known["a"]}, "mine", 40, 10)
    with pytest.raises(UserError, match="got 3 in"):
        split({**known, "c": known["a"][:3]}, "mine", 40, 10)
    with pytest.raises(UserError, match="set"):
        labelled_activations("no_such_set", PLACE, store, **SMALL)
    assert set(DEFAULT_SETS) <= set(sets())
