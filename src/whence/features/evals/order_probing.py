"""Order-sensitive probing: texts that differ in the order of their tokens only.

In all tasks, both classes have the same tokens, in training and in test texts. A bag of tokens therefore has an
accuracy of 50 %; it is fitted as a control, and its accuracy is reported.

first    the earlier of two words: every text is there twice, the second time with the two exchanged
halves   whether the two halves of a text are exchanged: every text is there both ways
thirds   whether a token stands in the first or the last third of its context

The first token stays where it is: where a model has no special token there, it is left out of what is averaged.
Only documents that are held out from collections are used, so that no dictionary has seen the texts as they were.
Documents are split into train and test, and with them all texts that are made of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import JsonValue
from torch import Tensor

from whence.errors import UserError
from whence.features.activations.collect import ShardProgress
from whence.features.activations.sequences import SequenceActivations, SequenceNotes, Sequences, activations_at
from whence.features.activations.store import ActivationSite
from whence.features.activations.text import PROBES, checksum, documents, held_out
from whence.features.config import OrderTask
from whence.features.evals.probing import KS, SEED, ProbeResult, ProbeTask, Units, compare_dictionaries, dense
from whence.features.sae.dictionary import Dictionary
from whence.models.pretrained import ends_of
from whence.random import generator
from whence.store.runs import Store

LENGTHS = {"first": 33, "halves": 33}
"""Tokens of a text. Two words are seldom both there exactly once in a long one."""
PAIRS = 3
"""Pairs of words, each a task of its own."""
CANDIDATES = 100
"""The most frequent tokens, among which words are looked for."""
TESTED = 5
"""One document in so many is tested on."""
FEWEST = 10
"""Texts of a pair in either order and half, below which there is nothing to learn."""
WINDOW_TOKENS = 16
"""Tokens that a context gives to `thirds`, roughly: many tokens have no equal in the other third."""


@dataclass(frozen=True)
class Windows:
    """Pieces of documents, all of one length."""

    ids: Tensor
    """(windows, length)"""
    test: Tensor
    """bool (windows,): by document"""

    def take(self, rows: Tensor) -> Windows:
        return Windows(self.ids[rows], self.test[rows])


def order_activations(
    kind: OrderTask,
    site: ActivationSite,
    store: Store,
    *,
    text: str = PROBES,
    size: int = 5000,
    on_progress: ShardProgress = lambda done, of: None,
) -> SequenceActivations:
    """About every text: `label`, `task` and `test`. size: texts, or tokens for `thirds`; fewer where text is short."""
    request: dict[str, JsonValue] = {"order": kind, "text": text, "checksum": checksum(text), "size": size}
    request["seed"] = SEED

    def make(tokenizer: Any) -> Sequences:
        left, right = ends_of(tokenizer)
        inner = site.context_size - len(left) - len(right)
        length = min(inner, LENGTHS.get(kind, inner))
        whole = [document for document in documents(text) if held_out(document)]
        tokens = tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"] if whole else []
        cut = windows([ids[:length] for ids in tokens] if kind == "halves" else tokens, length)
        if kind == "first":
            texts = words_exchanged(cut, word_of(tokenizer), size)
        else:
            texts = halves_exchanged(cut, size) if kind == "halves" else contexts(cut, size)
        if not (texts.about["test"].any() and (~texts.about["test"]).any()):
            raise UserError(f"text: {text!r} is too short for the task {kind!r}. Pass more text.")
        return texts

    return activations_at(site, request, make, store, on_progress)


def windows(tokens: list[list[int]], length: int) -> Windows:
    """Documents cut into pieces from a random start, shuffled; what several documents have is there once."""
    random = generator(SEED, "windows")
    test = (torch.randperm(len(tokens), generator=random) % TESTED == 0).tolist()
    spare = torch.rand(len(tokens), generator=random).tolist()
    pieces: dict[tuple[int, ...], bool] = {}
    for ids, tested, share in zip(tokens, test, spare, strict=True):
        first = int(share * (len(ids) % length + 1))
        for start in range(first, len(ids) - length + 1, length):
            pieces.setdefault(tuple(ids[start : start + length]), tested)
    order = torch.randperm(len(pieces), generator=random)
    ids = torch.tensor(list(pieces), dtype=torch.long).view(-1, length)
    return Windows(ids[order], torch.tensor(list(pieces.values()), dtype=torch.bool)[order])


def word_of(tokenizer: Any) -> Callable[[int], str | None]:
    """What a token says, if it is what the tokenizer gives for this word after another."""
    before = tokenizer("it", add_special_tokens=False)["input_ids"]

    def word(token: int) -> str | None:
        text = tokenizer.decode([token]).strip()
        alone = tokenizer(f"it {text}", add_special_tokens=False)["input_ids"] == [*before, token]
        return text if text.isalpha() and len(text) > 1 and alone else None

    return word


def words_exchanged(cut: Windows, word: Callable[[int], str | None], size: int) -> Sequences:
    """label: whether the first of a pair of words is the earlier one; task: which pair.

    Half of the texts as they were have the one first, half the other: that a text reads oddly after the exchange says
    nothing about the label.
    """
    frequent = torch.bincount(cut.ids.flatten()).argsort(descending=True, stable=True)[:CANDIDATES].tolist()
    names = {token: text for token in frequent if (text := word(token))}
    places = torch.stack([_once(cut.ids, token) for token in names], 1) if names else cut.ids[:, :0]
    halves = ((~cut.test, size - size // TESTED), (cut.test, size // TESTED))
    rows: list[Tensor] = []
    about: dict[str, list[Tensor]] = {"label": [], "task": [], "test": []}
    pairs = _pairs(places, cut.test)
    for task, (one, other) in enumerate(pairs):
        here, there = places[:, one], places[:, other]
        for half, share in halves:
            both = half & (here > 0) & (there > 0)
            ways = [(both & way).nonzero().flatten() for way in (here < there, here > there)]
            count = min(max(1, share // (4 * len(pairs))), *map(len, ways))
            chosen = torch.cat([way[:count] for way in ways])
            label, texts = here[chosen] < there[chosen], cut.take(chosen)
            rows += [texts.ids, exchanged(texts.ids, here[chosen], there[chosen])]
            about["label"] += [label, ~label]
            about["task"] += [torch.full((len(chosen),), task)] * 2
            about["test"] += [texts.test] * 2
    words = list(names.values())
    names_of = tuple(f"{words[one]} before {words[other]}" for one, other in pairs)
    return _sequences(rows, about, SequenceNotes(order="first", tasks=names_of))


def _once(ids: Tensor, token: int) -> Tensor:
    """(windows,): where a token stands behind the first place; 0 unless it is there exactly once."""
    is_it = ids == token
    return torch.where(is_it.sum(1) == 1, is_it.int().argmax(1), 0)


def _pairs(places: Tensor, test: Tensor) -> list[tuple[int, int]]:
    """Pairs of columns that come in both orders most often, in both halves; no word is in two of them."""
    often = torch.full((places.shape[1], places.shape[1]), len(places))
    for half in (places[test], places[~test]):
        for one, site in enumerate(half.T):
            before = ((site > 0)[:, None] & (half > site[:, None])).sum(0)
            often[one] = often[one].minimum(before)
            often[:, one] = often[:, one].minimum(before)
    often = often.triu(1)
    pairs: list[tuple[int, int]] = []
    while len(pairs) < PAIRS and often.numel() and often.max() >= FEWEST:
        one, other = divmod(int(often.argmax()), len(often))
        pairs.append((one, other))
        often[[one, other]] = 0
        often[:, [one, other]] = 0
    return pairs


def exchanged(ids: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """Rows with the tokens at two places in each other's place."""
    rows = torch.arange(len(ids))
    swapped = ids.clone()
    swapped[rows, here], swapped[rows, there] = ids[rows, there], ids[rows, here]
    return swapped


def halves_exchanged(cut: Windows, size: int) -> Sequences:
    """label: whether they are."""
    texts = cut.take(torch.arange(min(size // 2, len(cut.ids))))
    first, rest = texts.ids.split([1, texts.ids.shape[1] - 1], 1)
    swapped = torch.cat([first, rest.roll(rest.shape[1] // 2, 1)], 1)
    label = torch.zeros(len(texts.ids), dtype=torch.bool)
    about = {"label": [label, ~label], "task": [label.long()] * 2, "test": [texts.test] * 2}
    return _sequences([texts.ids, swapped], about, SequenceNotes(order="halves", tasks=("halves exchanged",)))


def contexts(cut: Windows, size: int) -> Sequences:
    """Texts as they are: the labels are of tokens."""
    texts = cut.take(torch.arange(min(max(2, size // WINDOW_TOKENS), len(cut.ids))))
    none = torch.zeros(len(texts.ids), dtype=torch.long)
    about = {"label": [none.bool()], "task": [none], "test": [texts.test]}
    return _sequences([texts.ids], about, SequenceNotes(order="thirds", tasks=("last third",), size=size))


def _sequences(rows: list[Tensor], about: dict[str, list[Tensor]], notes: SequenceNotes) -> Sequences:
    empty = {"label": torch.zeros(0).bool(), "task": torch.zeros(0).long(), "test": torch.zeros(0).bool()}
    joined = {name: torch.cat([empty[name], *parts]) for name, parts in about.items()}
    return Sequences([row for part in rows for row in part.tolist()], joined, notes)


class OrderProbe(ProbeResult):
    """On texts that differ in order alone."""

    order: str
    bag: float
    """Accuracy of a bag of tokens"""


VOCABULARY = 256
"""The most frequent tokens, which the bag counts."""


def probe_order(
    dictionaries: Mapping[str, Dictionary],
    sequences: SequenceActivations,
    *,
    mask_off: bool = False,
) -> OrderProbe:
    """On what `order_activations` returns."""
    units, tasks = single_tokens(sequences) if sequences.notes.order == "thirds" else whole_texts(sequences)
    compared = compare_dictionaries(dictionaries, sequences, units, tasks, KS, mask_off)
    bag = dense(_bag(sequences, units), tasks)
    return OrderProbe(order=sequences.notes.order, bag=bag, **dict(compared))


def whole_texts(sequences: SequenceActivations) -> tuple[Units, list[ProbeTask]]:
    label, test = sequences.about["label"].bool(), sequences.about["test"].bool()
    tasks = []
    for index, name in enumerate(sequences.notes.tasks):
        own = sequences.about["task"] == index
        train, tested = ((own & half).nonzero().flatten() for half in (~test, test))
        tasks.append(ProbeTask(name, train, tested, label))
    return Units.of_texts(sequences, sequences.content), tasks


def single_tokens(sequences: SequenceActivations) -> tuple[Units, list[ProbeTask]]:
    """Single tokens. In either half, a token is taken from the last third as often as from the first."""
    length, positions = int(sequences.lengths.max()), sequences.positions
    third = torch.where(positions < length // 3, 0, torch.where(positions >= length - length // 3, 1, -1))
    tested = sequences.about["test"].bool()[sequences.rows]
    size, order = sequences.notes.size, torch.randperm(len(sequences.content), generator=generator(SEED, "thirds"))
    shuffled = sequences.content[order]
    halves = []
    for half, share in ((~tested, 4 * size // 5), (tested, size // 5)):
        sides = [shuffled[half[shuffled] & (third[shuffled] == side)] for side in (0, 1)]
        halves.append(torch.cat([side[: share // 2] for side in _matched(sequences.ids, *sides)]))
    tokens = torch.cat(halves)
    units = Units(tokens, torch.arange(len(tokens)), len(tokens))
    train, test = torch.arange(len(tokens)).split([len(half) for half in halves])
    return units, [ProbeTask(sequences.notes.tasks[0], train, test, third[tokens] == 1)]


def _matched(ids: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """As many of both as possible such that the i-th of the one and the i-th of the other are the same token."""
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    for place, token in zip(other.tolist(), ids[other].tolist(), strict=True):
        waiting[token].append(place)
    pairs = [
        (place, waiting[token].pop())
        for place, token in zip(one.tolist(), ids[one].tolist(), strict=True)
        if waiting[token]
    ]
    here, there = torch.tensor(pairs, dtype=torch.long).view(-1, 2).unbind(1)
    return here, there


def _bag(sequences: SequenceActivations, units: Units) -> Tensor:
    """(units, VOCABULARY): how often the most frequent tokens occur."""
    ids = sequences.ids[units.tokens].long()
    rank = torch.bincount(ids).argsort(descending=True, stable=True).argsort(stable=True)[ids]
    known = rank < VOCABULARY
    counts = torch.zeros(units.count, VOCABULARY)
    return counts.index_put_((units.unit[known], rank[known]), torch.ones(int(known.sum())), accumulate=True)
