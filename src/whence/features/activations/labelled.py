"""Activations of labelled texts, each text either for training or for testing.

A dictionary may have been trained on these texts, though without their labels. Test texts are preferably documents that
are held out from every collection. If there are too few, others are added; `unseen` counts the held-out ones.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from pydantic import JsonValue

from whence.errors import UserError, not_allowed
from whence.features.activations.collect import ShardProgress
from whence.features.activations.sequences import SequenceActivations, SequenceNotes, Sequences, activations_at
from whence.features.activations.store import ActivationSite
from whence.features.activations.text import held_out, labelled, packaged_texts, sets
from whence.models.pretrained import ends_of
from whence.random import generator
from whence.store.runs import Store

DEFAULT_SETS = (
    "97_news_class",
    "159_code_Python",
    "92_glue_sst2",
    "60_wikidata_occupation_isathlete",
    "157_amazon_5star",
)
"""Topics, languages of code, sentiment, occupations and stars. At a context of 128 they are 1.2 million tokens: 0.9 GB
of minilm's activations, and about four minutes on one core, once."""
MOST_CLASSES = 20
SEED = 0
"""Of which texts are taken"""
FEWEST = 10
"""Texts of a class, below which there is nothing to learn."""


def labelled_activations(
    name: str,
    site: ActivationSite,
    store: Store,
    *,
    train: int,
    test: int,
    on_progress: ShardProgress = lambda done, of: None,
) -> SequenceActivations:
    """About every text: `label` and `test`. Fewer than asked for, in the same proportion, where a set is smaller."""
    if name not in sets():
        raise not_allowed("set", name, sets())
    request: dict[str, JsonValue] = {"set": name, "train": train, "test": test, "seed": SEED}
    request["version"] = packaged_texts()

    def make(tokenizer: Any) -> Sequences:
        left, right = ends_of(tokenizer)
        longest = site.context_size - len(left) - len(right)
        return split(once(labelled(name), tokenizer, longest), name, train, test)

    return activations_at(site, request, make, store, on_progress)


Known = dict[str, list[tuple[tuple[int, ...], bool]]]
"""By label: ids of a text, and whether it is held out."""


def once(rows: list[tuple[str, str]], tokenizer: Any, longest: int) -> Known:
    """Every text once, as it is after truncation; what has two labels has none."""
    options = {"add_special_tokens": False, "truncation": True, "max_length": longest}
    tokens = tokenizer([text for text, _ in rows], **options)["input_ids"]
    texts: dict[tuple[int, ...], tuple[set[str], bool]] = {}
    for (text, label), ids in zip(rows, tokens, strict=True):
        labels, held = texts.get(tuple(ids), (set(), True))
        texts[tuple(ids)] = (labels | {label}, held and held_out(text))
    known: Known = defaultdict(list)
    for ids, (labels, held) in texts.items():
        if len(labels) == 1 and len(ids) > 1:
            known[labels.pop()].append((ids, held))
    return known


def split(known: Known, name: str, train: int, test: int) -> Sequences:
    """As many texts of every class, in both halves."""
    classes = sorted(known)
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise UserError(
            f"set: expected 2 to {MOST_CLASSES} labels, got {len(classes)} in {name!r}. Choose another set."
        )
    fewest = min(map(len, known.values()))
    if fewest < FEWEST:
        raise UserError(
            f"set: expected {FEWEST} or more texts per label, got {fewest} in {name!r}. Choose another set."
        )
    tested = max(1, min(test // len(classes), fewest * test // (train + test)))
    trained = max(1, min(train // len(classes), fewest - tested))
    ids, labels, tests, unseen = [], [], [], 0
    for label, kind in enumerate(classes):
        order = torch.randperm(len(known[kind]), generator=generator(SEED, "texts", kind)).tolist()
        texts = sorted((known[kind][row] for row in order), key=lambda text: not text[1])[: tested + trained]
        ids += [list(text) for text, _ in texts]
        labels += [label] * len(texts)
        tests += [True] * tested + [False] * trained
        unseen += sum(held for _, held in texts[:tested])
    about = {"label": torch.tensor(labels), "test": torch.tensor(tests)}
    train, test = trained * len(classes), tested * len(classes)
    notes = SequenceNotes(set=name, classes=tuple(classes), train=train, test=test, unseen=unseen)
    return Sequences(ids, about, notes)
