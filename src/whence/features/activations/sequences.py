"""Hidden states of given sequences of any length, each computed once.

<store>/labelled/<address>/config.json         sealed   what was requested, and what there is to know about it
                           rows.safetensors             ids, flags, lengths, and what is known about every sequence
                           shard-*.safetensors          states, bfloat16 (tokens of the shard, d_in)

The address is taken over model, layer, context and what was requested, so that neither model nor text is opened when
the states are there. Sequences are kept in the order of their lengths: a batch needs little padding, and none is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from whence.config import Config
from whence.errors import UserError
from whence.features.activations.collect import ShardProgress, write_shards
from whence.features.activations.sources import activations_of, check_context, module_of
from whence.features.activations.store import CONFIG, CONTENT, ActivationSite, flags_of, shard_path
from whence.models.pretrained import ends_of, pretrained
from whence.store.disk import CorruptFileError, write_atomically
from whence.store.files import canonical, digest, read_sealed, write_sealed
from whence.store.runs import Store

SHARD = 256
"""Sequences per file."""
AT_ONCE = 2048
"""Tokens of a batch, padding included."""
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
    """What was computed, as config.json stores it."""

    site: ActivationSite
    request: dict[str, JsonValue]
    notes: SequenceNotes
    shards: int
    threads: int


@dataclass(frozen=True)
class Sequences:
    """What states are wanted of."""

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
    path = store.root / "labelled" / digest(canonical({**site.model_dump(), **request}))[:16]
    config = _begun(path, store)
    if config is None or any(not shard_path(path, index).exists() for index in range(config.shards)):
        model, tokenizer = pretrained(site.model)
        config = config or _begin(path, site, request, make(tokenizer), model, tokenizer, store)
        known = load_file(path / "rows.safetensors")
        rows = known["ids"].long().split(known["lengths"].tolist())
        parts = [rows[start : start + SHARD] for start in range(0, len(rows), SHARD)]
        write_shards(path, parts, partial(_without_padding, model, tokenizer, site), config.threads, on_progress)
    known = load_file(path / "rows.safetensors")
    activations = torch.cat([load_file(shard_path(path, index))["activations"] for index in range(config.shards)])
    about = {name: known[name] for name in known if name not in OWN}
    ids, flags, lengths = (known[name] for name in OWN)
    return SequenceActivations(activations, ids, flags, lengths, site.context_size, about, config.notes)


def _begun(path: Path, store: Store) -> SequencesConfig | None:
    try:
        return SequencesConfig.model_validate(read_sealed(path / CONFIG))
    except FileNotFoundError:
        return None
    except (CorruptFileError, ValueError):
        store.set_aside(path)
        return None


def _begin(
    path: Path,
    site: ActivationSite,
    request: dict[str, JsonValue],
    wanted: Sequences,
    model: Any,
    tokenizer: Any,
    store: Store,
) -> SequencesConfig:
    check_context(model, site.model, site.context_size)
    left, right = ends_of(tokenizer)
    order = torch.tensor([len(ids) for ids in wanted.ids]).argsort(stable=True)
    rows = [[*left, *wanted.ids[row], *right] for row in order.tolist()]
    longest = max(map(len, rows))
    if longest > site.context_size:
        raise UserError(f"context_size: {longest} tokens are requested, {site.context_size} fit.")
    known = {
        "ids": torch.tensor([token for row in rows for token in row], dtype=torch.int32),
        "flags": torch.cat([flags_of(len(row), (left, right)) for row in rows]),
        "lengths": torch.tensor([len(row) for row in rows]),
        **{name: values[order].contiguous() for name, values in wanted.about.items()},
    }
    store.prepare(2 * known["ids"].numel() * model.config.hidden_size)
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / "rows.safetensors", save(known))
    config = SequencesConfig(
        site=site,
        request=request,
        notes=wanted.notes,
        shards=-(-len(rows) // SHARD),
        threads=torch.get_num_threads(),
    )
    write_sealed(path / CONFIG, config.model_dump(mode="json"))
    return config


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
