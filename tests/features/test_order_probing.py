"""Probing for order: both classes have the same tokens, in both halves, and only order can tell them apart."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.features.synthetic import Reader, sequences
from whence.errors import UserError
from whence.features.activations.sequences import SequenceActivations, Sequences
from whence.features.activations.store import ActivationSite
from whence.features.evals.order_probing import (
    Windows,
    contexts,
    halves_exchanged,
    order_activations,
    probe_order,
    single_tokens,
    windows,
    word_of,
    words_exchanged,
)
from whence.models.pretrained import default_text, pretrained
from whence.store.runs import Store

WIDTH = 40
VOCABULARY = 90


def random_windows(count: int = 3000, length: int = 25) -> Windows:
    """Small tokens are frequent, as words are."""
    random = torch.Generator().manual_seed(0)
    documents = (VOCABULARY * torch.rand(count // 2, 2 * length + 3, generator=random) ** 2).long().tolist()
    return windows(documents, length)


def word(token: int) -> str | None:
    return f"w{token}" if token % 3 else None


def made(kind: str) -> Sequences:
    found = random_windows()
    if kind == "first":
        return words_exchanged(found, word, 1000)
    return halves_exchanged(found, 1000) if kind == "halves" else contexts(found, 1000)


def as_states(wanted: Sequences, bare: bool = False) -> SequenceActivations:
    """With a special token at both ends, unless bare, as the cache would have them."""
    rows = wanted.ids if bare else [[VOCABULARY, *row, VOCABULARY + 1] for row in wanted.ids]
    ids = torch.tensor([token for row in rows for token in row])
    lengths = torch.tensor([len(row) for row in rows])
    return sequences(lengths, WIDTH, wanted.about, wanted.notes, ids, bare)


def test_windows_are_split_by_document_and_there_once() -> None:
    documents = [[100 * number + index for index in range(23)] for number in range(200)]
    found = windows(documents, 10)
    assert found.ids.shape == (400, 10)
    assert all(row == list(range(row[0], row[0] + 10)) for row in found.ids.tolist())
    sides: dict[int, set[bool]] = {}
    for row, test in zip(found.ids.tolist(), found.test.tolist(), strict=True):
        sides.setdefault(row[0] // 100, set()).add(test)
    assert len(sides) == 200
    assert all(len(side) == 1 for side in sides.values())
    assert sum(True in side for side in sides.values()) == 40
    assert len({row[0] % 100 for row in found.ids.tolist()}) > 4, "pieces start anywhere"
    same = windows([[5] * 10] * 50, 10)
    assert len(same.ids) == 1


@pytest.mark.parametrize("kind", ["first", "halves"])
def test_every_text_has_its_counterpart_in_the_same_half(kind: str) -> None:
    """The same tokens, the same task and half, and the other label."""
    found = made(kind)
    label, task, test = (found.about[name].tolist() for name in ("label", "task", "test"))
    bags = [(tuple(sorted(ids)), ids[0], task[row], test[row]) for row, ids in enumerate(found.ids)]
    assert Counter(bag for bag, one in zip(bags, label, strict=True) if one) == Counter(
        bag for bag, one in zip(bags, label, strict=True) if not one
    )
    assert len({tuple(sorted(ids)) for ids, one in zip(found.ids, test, strict=True) if one}) > 50
    tested = {tuple(sorted(ids)) for ids, one in zip(found.ids, test, strict=True) if one}
    trained = {tuple(sorted(ids)) for ids, one in zip(found.ids, test, strict=True) if not one}
    assert not tested & trained


def test_labels_say_which_word_is_first_and_texts_as_they_were_are_balanced() -> None:
    found = made("first")
    originals = {tuple(row) for row in random_windows().ids.tolist()}
    assert len(found.notes.tasks) == 3
    words = [tuple(int(name[1:]) for name in task.split(" before ")) for task in found.notes.tasks]
    assert len({token for pair in words for token in pair}) == 6
    was: Counter[tuple[int, bool, bool]] = Counter()
    for row, ids in enumerate(found.ids):
        one, other = words[int(found.about["task"][row])]
        assert ids.count(one) == ids.count(other) == 1
        assert bool(found.about["label"][row]) == (ids.index(one) < ids.index(other))
        if tuple(ids) in originals:
            was[int(found.about["task"][row]), bool(found.about["label"][row]), bool(found.about["test"][row])] += 1
    assert sum(was.values()) == len(found.ids) / 2
    for task in range(3):
        for test in (False, True):
            assert was[task, True, test] == was[task, False, test] > 0


def test_halves_are_exchanged_behind_the_first_token() -> None:
    found = made("halves")
    whole = {tuple(ids) for ids, one in zip(found.ids, found.about["label"].tolist(), strict=True) if not one}
    for ids, one in zip(found.ids, found.about["label"].tolist(), strict=True):
        assert (ids[0], *ids[13:], *ids[1:13]) in whole or not one


def test_thirds_have_the_same_tokens_on_both_sides() -> None:
    found = as_states(made("thirds"))
    units, (task,) = single_tokens(found)
    assert 0 < len(task.test) < len(task.train)
    rows = found.rows[units.tokens]
    assert not set(rows[task.train].tolist()) & set(rows[task.test].tolist())
    places = found.positions[units.tokens]
    assert places[task.positive].min() >= 27 - 9
    assert places[~task.positive].max() < 9
    for half in (task.train, task.test):
        ids, last = found.ids[units.tokens[half]], task.positive[half]
        assert Counter(ids[last].tolist()) == Counter(ids[~last].tolist())
        assert not set(ids.tolist()) & {VOCABULARY, VOCABULARY + 1}
    assert len(units.tokens.unique()) == len(units.tokens)


@pytest.mark.parametrize("kind", ["first", "halves", "thirds"])
@pytest.mark.parametrize("bare", [False, True])
def test_states_that_know_only_their_token_are_at_chance(kind: str, bare: bool) -> None:
    """Also where a model has no special tokens, and the first token of the text is left out."""
    found = as_states(made(kind), bare)
    table = torch.randint(-3, 4, (VOCABULARY + 2, WIDTH), generator=torch.Generator().manual_seed(1)).bfloat16()
    result = probe_order({"reader": Reader(WIDTH)}, dataclasses.replace(found, activations=table[found.ids]))
    assert result.bag == result.majority == result.raw.all == 0.5
    everything = [result.raw, result.dictionaries["reader"]]
    assert {value for one in everything for value in one.k.values()} == {0.5}


@pytest.mark.parametrize("kind", ["first", "halves", "thirds"])
def test_a_feature_that_knows_order_is_found(kind: str) -> None:
    found = as_states(made(kind))
    knows: Tensor = found.positions if kind == "thirds" else 20 * found.about["label"][found.rows]
    activations = found.activations.clone()
    activations[:, 11] = knows.bfloat16()
    result = probe_order({"reader": Reader(WIDTH)}, dataclasses.replace(found, activations=activations))
    one = result.dictionaries["reader"]
    assert all(task.features[0] == 11 for task in one.tasks.values())
    assert one.k[1] == 1
    assert result.raw.k[1] == 1


def test_words_are_whole_words() -> None:
    _, tokenizer = pretrained("minilm")
    said = word_of(tokenizer)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in ("the", "##ing", "ing", ",", "a", "[SEP]")}
    assert {name: said(token) for name, token in ids.items()} == {
        "the": "the",
        "##ing": None,
        "ing": "ing",
        ",": None,
        "a": None,
        "[SEP]": None,
    }


def test_a_real_model_knows_where_its_tokens_stand(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text(default_text())
    site, store = ActivationSite(layer=1, context_size=32), Store(tmp_path / "store")
    results = {
        kind: probe_order({}, order_activations(kind, site, store, text=str(book), size=400))
        for kind in ("halves", "thirds")
    }
    assert {result.bag for result in results.values()} == {0.5}
    assert results["thirds"].raw.all > 0.9, "it adds a learned vector to every position"
    tiny = tmp_path / "tiny.txt"
    tiny.write_text("Too little.\n\nOf everything.")
    with pytest.raises(UserError, match="too short"):
        order_activations("first", site, store, text=str(tiny))
