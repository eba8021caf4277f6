"""Texts to collect activations on: the packaged labelled sets, or a text file."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import itertools
import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError, not_allowed
from whence.features.activations.store import SPECIAL, flags_of
from whence.inputs import file_digest, read_text
from whence.models.pretrained import between_ends, ends_of
from whence.random import derive
from whence.system import packaged_file, packaged_version

PACKAGE = "sae-probes"
PROBES = "probes"
"""The name of all packaged sets together."""
HELD_OUT = 10
"""One document in this number is held out."""
LONGEST = 2**22
"""Largest number of characters of a document; encoding it takes about a gigabyte"""


def documents(text: str) -> list[str]:
    """The distinct documents, in an order that depends on the documents only."""
    every = _probes() if text == PROBES else _file(Path(text))
    return sorted(dict.fromkeys(every), key=_address)


def checksum(text: str) -> str:
    """Checksum of a text file or, for packaged sets, the version of their package."""
    if text == PROBES:
        return packaged_texts()
    if not os.path.lexists(text):
        raise UserError(f"text: expected {PROBES!r} or a text file that exists, got {text!r}.")
    return file_digest(text, "text")[:16]


def packaged_texts() -> str:
    """The version of the packaged sets."""
    return packaged_version(PACKAGE)


def held_out(document: str) -> bool:
    """Whether a document is held out. This depends on its content, and is therefore the same in every collection."""
    return int(_address(document)[:8], 16) % HELD_OUT == 0


def labelled(name: str) -> list[tuple[str, str]]:
    """(text, label) of one packaged set."""
    path = _folder() / f"{name}.csv.zst"
    if name not in sets():
        raise not_allowed("set", name, sets())
    return [(row["prompt"], row["target"]) for row in _rows(path)]


@functools.cache
def sets() -> list[str]:
    return sorted(path.name.removesuffix(".csv.zst") for path in _folder().glob("*.csv.zst"))


def _probes() -> list[str]:
    return [text for name in sets() for text, _ in labelled(name) if text.strip()]


def _folder() -> Path:
    place = "sae_probes/data/cleaned_data"
    return packaged_file(PACKAGE, place, field="text", what="labelled text", also="zstandard")


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        import zstandard
    except ImportError:
        raise UserError("text: packaged sets need zstandard. Run: pip install zstandard") from None
    csv.field_size_limit(LONGEST)
    with path.open("rb") as file:
        table = zstandard.ZstdDecompressor().stream_reader(file).read().decode(errors="replace")
    return list(csv.DictReader(io.StringIO(table)))


def _file(path: Path) -> list[str]:
    """Documents are separated by empty lines."""
    every = [part.strip() for part in read_text(path).split("\n\n")]
    if max(map(len, every)) > LONGEST:
        raise UserError(
            f"text: expected documents of at most {LONGEST:,} characters, got a longer one in {str(path)!r}. Separate "
            "documents by empty lines."
        )
    return [document for document in every if document]


def _address(document: str) -> str:
    return hashlib.sha256(document.encode()).hexdigest()


def passages(
    tokenizer: Any, corpus: Sequence[str], count: int, length: int, without: Sequence[str] = ()
) -> tuple[Tensor, Tensor]:
    """Token ids (count, length) with special tokens, and bool (length,): which are special, except for the first.

    corpus: packaged sets (`100_news_fake`), one label of a set (`159_code_Python=1`), or text files, in turn. Only
    held-out documents are used, each once, and none that is also in `without`.
    """
    ends = ends_of(tokenizer)
    inner = length - len(ends[0]) - len(ends[1])
    other = {document for name in without for document in _documents(name)}
    taken: set[str] = set()
    kinds = []
    for name in corpus:
        fresh = [document for document in _documents(name) if document not in taken and document not in other]
        taken |= set(fresh)
        kinds.append(_long_enough(tokenizer, fresh, inner, -(-count // len(corpus)), name))
    in_turn = [ids for several in itertools.zip_longest(*kinds) for ids in several if ids is not None][:count]
    return between_ends(torch.tensor(in_turn), ends), flags_of(length, ends) == SPECIAL


def _documents(name: str) -> list[str]:
    """Held out, in an order that depends on the documents alone."""
    kind, _, label = name.partition("=")
    if os.path.isfile(name):
        texts = documents(name)
    else:
        texts = [text for text, own in labelled(kind) if label in ("", own)]
        if not texts:
            allowed = ", ".join(sorted({own for _, own in labelled(kind)})[:20])
            raise UserError(f"corpus: the set {kind!r} has no label {label!r}. Allowed: {allowed}.")
    return sorted({text for text in texts if held_out(text)}, key=derive)


def _long_enough(tokenizer: Any, texts: Sequence[str], length: int, count: int, name: str) -> list[list[int]]:
    """The first tokens of the first texts that have as many."""
    rows: list[list[int]] = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) >= length:
            rows.append(ids[:length])
        if len(rows) == count:
            return rows
    raise UserError(
        f"corpus: expected {count} held-out documents of {length} or more tokens in {name!r}, got {len(rows)}. Request "
        "fewer or shorter sequences, or pass more text."
    )
