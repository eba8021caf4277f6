"""The beginnings of documents of one kind, as many tokens of each, one kind apart from another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError
from whence.features.activations.text import documents, held_out, labelled
from whence.models.pretrained import between_ends, ends_of
from whence.random import derive


def passages(
    tokenizer: Any, corpus: Sequence[str], count: int, length: int, without: Sequence[str] = ()
) -> tuple[Tensor, Tensor]:
    """ids (count, length), special tokens included, and bool (length,): which are special.

    corpus: packaged sets (`100_news_fake`), one label of a set (`159_code_Python=1`), or text files, in turn. Only
    documents that no collection trains on are read, each once, and none that belongs to `without` as well.
    """
    ends = ends_of(tokenizer)
    inner = length - len(ends[0]) - len(ends[1])
    other = {document for name in without for document in _documents(name)}
    taken: set[str] = set()
    kinds = []
    for name in corpus:
        found = [document for document in _documents(name) if document not in taken and document not in other]
        taken |= set(found)
        kinds.append(_long_enough(tokenizer, found, inner, -(-count // len(corpus)), name))
    in_turn = [ids for several in itertools.zip_longest(*kinds) for ids in several if ids is not None][:count]
    special = torch.zeros(length, dtype=torch.bool)
    special[: len(ends[0])] = True
    special[length - len(ends[1]) :] = True
    return between_ends(torch.tensor(in_turn), ends), special


def _documents(name: str) -> list[str]:
    """Held out, in an order that depends on the documents alone."""
    kind, _, label = name.partition("=")
    if Path(name).is_file():
        found = documents(name)
    else:
        found = [text for text, own in labelled(kind) if label in ("", own)]
        if not found:
            allowed = ", ".join(sorted({own for _, own in labelled(kind)})[:20])
            raise UserError(f"corpus: {kind!r} has no label {label!r}. Allowed: {allowed}.", field="corpus")
    return sorted({text for text in found if held_out(text)}, key=derive)


def _long_enough(tokenizer: Any, texts: Sequence[str], length: int, count: int, name: str) -> list[list[int]]:
    """The first tokens of the first texts that have as many."""
    found: list[list[int]] = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) >= length:
            found.append(ids[:length])
        if len(found) == count:
            return found
    raise UserError(
        f"corpus: {name!r} has {len(found)} held-out documents of {length} tokens, and {count} are asked for. "
        "Allowed: fewer or shorter sequences, or more text.",
        field="corpus",
    )
