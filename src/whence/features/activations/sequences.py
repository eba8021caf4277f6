"""Hidden states of given sequences of any length, each computed once.

<store>/labelled/<address>/spec.json           sealed   what was asked for, and what there is to know about it
                           rows.safetensors             ids, flags, lengths, and what is known about every sequence
                           shard-*.safetensors          states, bfloat16 (tokens of the shard, width)

The address is taken over model, layer, context and what was asked for, so that neither model nor text is opened when
the states are there. Sequences are kept in the order of their lengths: a batch needs little padding, and none is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from whence.config import Config
from whence.errors import UserError
from whence.features.activations.collect import Tell, thread_count
from whence.features.activations.sources import Precision, check_context, module_of, states_of
from whence.features.activations.store import CONTENT, flags_of, shard_path
from whence.models.pretrained import ends_of, pretrained
from whence.store.files import CorruptFileError, canonical, digest, read_sealed, write_atomically, write_sealed
from whence.store.runs import Store

SHARD = 256
"""Sequences per file."""
AT_ONCE = 2048
"""Tokens of a batch, padding included."""
OWN = ("ids", "flags", "lengths")


class Place(Config):
    """Which states of a model: those that a dictionary was trained on, by the names that a collection gives them."""

    model: str = Field(default="minilm", description="minilm, smollm2, or a directory with a transformers model")
    layer: int = Field(default=3, ge=0, description="states after so many blocks; 0: what the first is given")
    context: int = Field(default=128, ge=4, le=8192, description="tokens of a text that are looked at")
    precision: Precision = Field(default="fp32", description="of the model; states are kept in bf16")

    @classmethod
    def of(cls, collection: dict[str, Any]) -> Place:
        """The place that `Activations.spec` speaks of."""
        return cls(**{key: collection[key] for key in cls.model_fields})


@dataclass(frozen=True)
class Sequences:
    """What states are wanted of."""

    ids: list[list[int]]
    """Without special tokens."""
    about: dict[str, Tensor]
    """By name, one number per sequence: a label, a split."""
    notes: dict[str, Any]
    """What else a reader must know, as JSON."""


@dataclass(frozen=True)
class SequenceStates:
    """All tokens of all sequences, one after the other."""

    states: Tensor
    """(tokens, width) bfloat16"""
    ids: Tensor
    """(tokens,)"""
    flags: Tensor
    """(tokens,): CONTENT, SPECIAL or FIRST"""
    lengths: Tensor
    """(sequences,)"""
    context: int
    about: dict[str, Tensor]
    notes: dict[str, Any]

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


def states_at(
    place: Place, asked: dict[str, Any], make: Callable[[Any], Sequences], store: Store, tell: Tell
) -> SequenceStates:
    """`make(tokenizer)` gives the sequences that `asked` describes; it is called only where they are not there yet."""
    path = store.root / "labelled" / digest(canonical({**place.model_dump(), **asked}))[:16]
    spec = _begun(path, store)
    if spec is None or any(not shard_path(path, index).exists() for index in range(spec["shards"])):
        model, tokenizer = pretrained(place.model)
        spec = spec or _begin(path, place, asked, make(tokenizer), model, tokenizer, store)
        _compute(path, place, spec, model, tokenizer, tell)
    known = load_file(path / "rows.safetensors")
    states = torch.cat([load_file(shard_path(path, index))["states"] for index in range(spec["shards"])])
    about = {name: known[name] for name in known if name not in OWN}
    ids, flags, lengths = (known[name] for name in OWN)
    return SequenceStates(states, ids, flags, lengths, place.context, about, spec["notes"])


def _begun(path: Path, store: Store) -> dict[str, Any] | None:
    try:
        return read_sealed(path / "spec.json")
    except FileNotFoundError:
        return None
    except CorruptFileError:
        store.set_aside(path)
        return None


def _begin(
    path: Path, place: Place, asked: dict[str, Any], wanted: Sequences, model: Any, tokenizer: Any, store: Store
) -> dict[str, Any]:
    check_context(model, place.model, place.context)
    left, right = ends_of(tokenizer)
    order = torch.tensor([len(ids) for ids in wanted.ids]).argsort(stable=True)
    rows = [[*left, *wanted.ids[row], *right] for row in order.tolist()]
    if max(map(len, rows)) > place.context:
        raise UserError(f"context: {max(map(len, rows))} tokens are asked for, {place.context} fit.", field="context")
    known = {
        "ids": torch.tensor([token for row in rows for token in row], dtype=torch.int32),
        "flags": torch.cat([flags_of(len(row), (left, right)) for row in rows]),
        "lengths": torch.tensor([len(row) for row in rows]),
        **{name: values[order].contiguous() for name, values in wanted.about.items()},
    }
    store.prepare(2 * known["ids"].numel() * model.config.hidden_size)
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / "rows.safetensors", save(known))
    spec = {**place.model_dump(), **asked, "notes": wanted.notes}
    spec |= {"shards": -(-len(rows) // SHARD), "threads": torch.get_num_threads()}
    write_sealed(path / "spec.json", spec)
    return spec


def _compute(path: Path, place: Place, spec: dict[str, Any], model: nn.Module, tokenizer: Any, tell: Tell) -> None:
    known = load_file(path / "rows.safetensors")
    rows = known["ids"].long().split(known["lengths"].tolist())
    layer, padding = module_of(model, place.layer), tokenizer.pad_token_id or 0
    with torch.no_grad(), thread_count(spec["threads"]):
        for index in range(spec["shards"]):
            tell(index, spec["shards"])
            if not shard_path(path, index).exists():
                part = rows[index * SHARD : (index + 1) * SHARD]
                step = max(1, AT_ONCE // len(part[-1]))
                batches = [part[start : start + step] for start in range(0, len(part), step)]
                states = torch.cat([_flat(model, layer, some, place.precision, padding) for some in batches])
                write_atomically(shard_path(path, index), save({"states": states}))
    tell(spec["shards"], spec["shards"])


def _flat(model: nn.Module, layer: str | None, rows: tuple[Tensor, ...], precision: Precision, padding: int) -> Tensor:
    """(tokens, width) without padding, which stands behind a text and is hidden from it."""
    ids = pad_sequence(list(rows), batch_first=True, padding_value=padding)
    real = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    return states_of(model, layer, ids, precision, real.long())[real]
