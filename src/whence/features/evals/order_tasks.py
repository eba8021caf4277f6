"""Texts that differ from others in the order of their tokens alone.

first    the earlier of two words: every text is there twice, the second time with the two exchanged
halves   whether the two halves of a text are exchanged: every text is there both ways
thirds   whether a token stands in the first or the last third of its context

The first token stays where it is: where a model has no special token there, it is left out of what is averaged.
Only documents that are held out from collections are used, so that no dictionary has seen the texts as they were.
Documents are split into train and test, and with them all texts that are made of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from whence.errors import UserError, not_allowed
from whence.features.activations.collect import Tell
from whence.features.activations.sequences import Place, Sequences, SequenceStates, states_at
from whence.features.activations.text import PROBES, checksum, documents, held_out
from whence.models.pretrained import ends_of
from whence.random import generator
from whence.store.runs import Store

Kind = Literal["first", "halves", "thirds"]
KINDS: tuple[Kind, ...] = get_args(Kind)
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


def order_states(
    kind: Kind,
    place: Place,
    store: Store,
    *,
    text: str = PROBES,
    size: int = 5000,
    seed: int = 0,
    tell: Tell = lambda done, of: None,
) -> SequenceStates:
    """About every text: `label`, `task` and `test`. size: texts, or tokens for `thirds`; fewer where text is short."""
    if kind not in KINDS:
        raise not_allowed("kind", kind, KINDS)
    asked = {"order": kind, "text": text, "checksum": checksum(text), "size": size, "seed": seed}

    def make(tokenizer: Any) -> Sequences:
        left, right = ends_of(tokenizer)
        inner = place.context - len(left) - len(right)
        length = min(inner, LENGTHS.get(kind, inner))
        whole = [document for document in documents(text) if held_out(document)]
        tokens = tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"] if whole else []
        if kind == "first":
            found = words_exchanged(windows(tokens, length, seed), word_of(tokenizer), size)
        elif kind == "halves":
            found = halves_exchanged(windows([ids[:length] for ids in tokens], length, seed), size)
        else:
            found = contexts(windows(tokens, length, seed), size)
        if not (found.about["test"].any() and (~found.about["test"]).any()):
            raise UserError(f"text: {text!r} is too short for {kind!r}. Allowed: more text.", field="text")
        return found

    return states_at(place, asked, make, store, tell)


def windows(tokens: list[list[int]], length: int, seed: int) -> Windows:
    """Documents cut into pieces from a random start, shuffled; what several documents have is there once."""
    random = generator(seed, "windows")
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
        said = tokenizer.decode([token]).strip()
        alone = tokenizer(f"it {said}", add_special_tokens=False)["input_ids"] == [*before, token]
        return said if said.isalpha() and len(said) > 1 and alone else None

    return word


def words_exchanged(found: Windows, word: Callable[[int], str | None], size: int) -> Sequences:
    """label: whether the first of a pair of words is the earlier one; task: which pair.

    Half of the texts as they were have the one first, half the other: that a text reads oddly after the exchange says
    nothing about the label.
    """
    frequent = torch.bincount(found.ids.flatten()).argsort(descending=True, stable=True)[:CANDIDATES].tolist()
    names = {token: said for token in frequent if (said := word(token))}
    places = torch.stack([_once(found.ids, token) for token in names], 1) if names else found.ids[:, :0]
    halves = ((~found.test, size - size // TESTED), (found.test, size // TESTED))
    rows: list[Tensor] = []
    about: dict[str, list[Tensor]] = {"label": [], "task": [], "test": []}
    pairs = _pairs(places, found.test)
    for task, (one, other) in enumerate(pairs):
        here, there = places[:, one], places[:, other]
        for half, share in halves:
            both = half & (here > 0) & (there > 0)
            ways = [(both & way).nonzero().flatten() for way in (here < there, here > there)]
            count = min(max(1, share // (4 * len(pairs))), *map(len, ways))
            kept = torch.cat([way[:count] for way in ways])
            label, texts = here[kept] < there[kept], found.take(kept)
            rows += [texts.ids, exchanged(texts.ids, here[kept], there[kept])]
            about["label"] += [label, ~label]
            about["task"] += [torch.full((len(kept),), task)] * 2
            about["test"] += [texts.test] * 2
    words = list(names.values())
    notes = {"order": "first", "tasks": [f"{words[one]} before {words[other]}" for one, other in pairs]}
    return _sequences(rows, about, notes)


def _once(ids: Tensor, token: int) -> Tensor:
    """(windows,): where a token stands behind the first place; 0 unless it is there exactly once."""
    is_it = ids == token
    return torch.where(is_it.sum(1) == 1, is_it.int().argmax(1), 0)


def _pairs(places: Tensor, test: Tensor) -> list[tuple[int, int]]:
    """Pairs of columns that come in both orders most often, in both halves; no word is in two of them."""
    often = torch.full((places.shape[1], places.shape[1]), len(places))
    for half in (places[test], places[~test]):
        for one, place in enumerate(half.T):
            before = ((place > 0)[:, None] & (half > place[:, None])).sum(0)
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


def halves_exchanged(found: Windows, size: int) -> Sequences:
    """label: whether they are."""
    texts = found.take(torch.arange(min(size // 2, len(found.ids))))
    first, rest = texts.ids.split([1, texts.ids.shape[1] - 1], 1)
    swapped = torch.cat([first, rest.roll(rest.shape[1] // 2, 1)], 1)
    label = torch.zeros(len(texts.ids), dtype=torch.bool)
    about = {"label": [label, ~label], "task": [label.long()] * 2, "test": [texts.test] * 2}
    return _sequences([texts.ids, swapped], about, {"order": "halves", "tasks": ["halves exchanged"]})


def contexts(found: Windows, size: int) -> Sequences:
    """Texts as they are: the labels are of tokens."""
    texts = found.take(torch.arange(min(max(2, size // WINDOW_TOKENS), len(found.ids))))
    none = torch.zeros(len(texts.ids), dtype=torch.long)
    about = {"label": [none.bool()], "task": [none], "test": [texts.test]}
    return _sequences([texts.ids], about, {"order": "thirds", "tasks": ["last third"], "size": size})


def _sequences(rows: list[Tensor], about: dict[str, list[Tensor]], notes: dict[str, Any]) -> Sequences:
    empty = {"label": torch.zeros(0).bool(), "task": torch.zeros(0).long(), "test": torch.zeros(0).bool()}
    joined = {name: torch.cat([empty[name], *parts]) for name, parts in about.items()}
    return Sequences([row for part in rows for row in part.tolist()], joined, notes)
