"""Activations of given sequences of any length, each computed once.

<store>/labelled/<address> is a folder of data (`whence.store.data`) with the parts
  rows       ids, flags, lengths, and what is known about every sequence
  shard-*    activations, bfloat16 (tokens of the shard, d_in)

The address is taken over model, layer, context and what was requested, so that neither model nor text is loaded when
the activations are stored. Sequences are sorted by length, so that batches need little padding, and none is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from whence.config import Config
from whence.errors import UserError
from whence.features.activations.collect import ShardProgress, begun, checked, content, fill, writing
from whence.features.activations.sources import activations_of, check_context, module_of
from whence.features.activations.store import CONTENT, ActivationSite, flags_of, shard_name
from whence.models.pretrained import content_of, ends_of, pretrained
from whence.store.data import CONFIG, DataFolder
from whence.store.disk import CorruptFileError
from whence.store.files import canonical, digest
from whence.store.records import parse_as
from whence.store.runs import Store

SHARD = 256
"""Sequences per file."""
AT_ONCE = 2048
"""Tokens of a batch, padding included."""
ROWS = "rows"
OWN = ("ids", "flags", "lengths")


class SequenceNotes(Config):
    """What else a reader of the sequences must know; each kind of them fills in its own fields."""

    set: str = ""
    classes: tuple[str, ...] = ()
    train: int = 0
    test: int = 0
    unseen: int = 0
    """Test texts that no dictionary can have been trained on"""
    order: str = ""
    tasks: tuple[str, ...] = ()
    size: int = 0
    """Tokens that are classified, where single ones are"""


class SequencesConfig(Config):
    """What was requested, as config.json stores it."""

    site: ActivationSite
    request: dict[str, JsonValue]
    notes: SequenceNotes
    rows: str
    """Checksum of the part `rows`, which all other parts belong to"""
    size: int
    """Bytes of the activations"""
    threads: int


@dataclass(frozen=True)
class Sequences:
    """Sequences to compute activations of."""

    ids: list[list[int]]
    """Without special tokens."""
    about: dict[str, Tensor]
    """By name, one number per sequence: a label, a split."""
    notes: SequenceNotes


@dataclass(frozen=True)
class SequenceActivations:
    """All tokens of all sequences, one after the other."""

    activations: Tensor
    """(tokens, d_in) bfloat16"""
    ids: Tensor
    """(tokens,)"""
    flags: Tensor
    """(tokens,): CONTENT, SPECIAL or FIRST"""
    lengths: Tensor
    """(sequences,)"""
    context_size: int
    about: dict[str, Tensor]
    notes: SequenceNotes
    checksum: str = ""
    """Of what is stored"""

    @functools.cached_property
    def rows(self) -> Tensor:
        """(tokens,): the sequence of every token."""
        return torch.arange(len(self.lengths)).repeat_interleave(self.lengths)

    @functools.cached_property
    def positions(self) -> Tensor:
        """(tokens,), counted from 0, special tokens included."""
        return torch.arange(len(self.ids)) - (self.lengths.cumsum(0) - self.lengths)[self.rows]

    @functools.cached_property
    def content(self) -> Tensor:
        """(n,): the tokens that are text, and not the first of their sequence, which many models use as a sink."""
        return (self.flags == CONTENT).nonzero().flatten()


def activations_at(
    site: ActivationSite,
    request: dict[str, JsonValue],
    make: Callable[[Any], Sequences],
    store: Store,
    on_progress: ShardProgress,
) -> SequenceActivations:
    """`make(tokenizer)` gives the sequences that `request` describes; it is called only where they are missing."""
    request = {**request, "weights": content_of(site.model)}
    path = store.place("labelled") / digest(canonical({**site.model_dump(), **request}))[:16]
    try:
        return _read(DataFolder(path))
    except (OSError, CorruptFileError):
        pass
    model, tokenizer = pretrained(site.model)
    with writing(path, store):
        data = begun(path, store) or _begin(path, site, request, make(tokenizer), model, tokenizer, store)
        config = _config(data)

        @functools.cache
        def rows() -> tuple[Tensor, ...]:
            known = data.read(ROWS)
            return known["ids"].long().split(known["lengths"].tolist())

        def compute(part: str) -> Mapping[str, Tensor]:
            if part == ROWS:
                return checked(_rows(site, make(tokenizer), tokenizer), config.rows, path)
            start = (data.config.parts.index(part) - 1) * SHARD
            return {"activations": _without_padding(model, tokenizer, site, rows()[start : start + SHARD])}

        fill(data, store, compute, config.size, config.threads, on_progress)
        return _read(DataFolder(path))


def _config(data: DataFolder) -> SequencesConfig:
    return parse_as(SequencesConfig, data.config.request, data.path / CONFIG)


def _read(data: DataFolder) -> SequenceActivations:
    config, known = _config(data), dict(data.read(ROWS))
    activations = torch.cat([data.read(part)["activations"] for part in data.config.parts if part != ROWS])
    ids, flags, lengths = (known.pop(name) for name in OWN)
    context_size, checksum = config.site.context_size, data.checksum
    return SequenceActivations(activations, ids, flags, lengths, context_size, known, config.notes, checksum)


def _begin(
    path: Path,
    site: ActivationSite,
    request: dict[str, JsonValue],
    wanted: Sequences,
    model: Any,
    tokenizer: Any,
    store: Store,
) -> DataFolder:
    check_context(model, site.model, site.context_size)
    known = _rows(site, wanted, tokenizer)
    size = 2 * known["ids"].numel() * model.config.hidden_size
    store.prepare(size)
    config = SequencesConfig(
        site=site, request=request, notes=wanted.notes, rows=content(known), size=size, threads=torch.get_num_threads()
    )
    parts = [ROWS, *map(shard_name, range(-(-len(wanted.ids) // SHARD)))]
    data = DataFolder.begin(path, config.model_dump(mode="json"), parts)
    data.write(ROWS, known)
    return data


def _rows(site: ActivationSite, wanted: Sequences, tokenizer: Any) -> dict[str, Tensor]:
    """What is stored of the sequences, in the order of their lengths."""
    left, right = ends_of(tokenizer)
    order = torch.tensor([len(ids) for ids in wanted.ids]).argsort(stable=True)
    rows = [[*left, *wanted.ids[row], *right] for row in order.tolist()]
    longest = max(map(len, rows))
    if longest > site.context_size:
        raise UserError(f"context_size: expected sequences of at most {site.context_size} tokens, got {longest}.")
    return {
        "ids": torch.tensor([token for row in rows for token in row], dtype=torch.int32),
        "flags": torch.cat([flags_of(len(row), (left, right)) for row in rows]),
        "lengths": torch.tensor([len(row) for row in rows]),
        **{name: values[order].contiguous() for name, values in wanted.about.items()},
    }


def _without_padding(model: nn.Module, tokenizer: Any, site: ActivationSite, rows: Sequence[Tensor]) -> Tensor:
    """(tokens, d_in). Padding stands behind a text and is hidden from it."""
    layer, padding = module_of(model, site.layer), tokenizer.pad_token_id or 0
    parts, step = [], max(1, AT_ONCE // len(rows[-1]))
    for start in range(0, len(rows), step):
        some = list(rows[start : start + step])
        ids = pad_sequence(some, batch_first=True, padding_value=padding)
        real = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in some])[:, None]
        parts.append(activations_of(model, layer, ids, site.precision, real.long())[real])
    return torch.cat(parts)
