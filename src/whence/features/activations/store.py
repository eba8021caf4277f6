"""Activations on disk, each with the token, the position and the sequence that it belongs to.

<store>/activations/<name>/config.json          sealed  what was collected
                           tokens.safetensors           ids (sequences, context_size), and which sequences are held out
                           shard-*.safetensors          bfloat16 (sequences of the shard, context_size, d_in)
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, JsonValue
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from whence.config import Config
from whence.errors import UserError, not_allowed
from whence.store.disk import CorruptFileError
from whence.store.files import canonical, digest, read_sealed
from whence.store.runs import Store

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CONFIG, TOKENS = "config.json", "tokens.safetensors"
SHARD = 64
"""Sequences per file."""
Precision = Literal["fp32", "bf16"]
Split = Literal["train", "held out"]
CONTENT, SPECIAL, FIRST = 0, 1, 2
"""Flags of a position: an ordinary token, one that the tokenizer put there, the first of its sequence."""
SINK_RATIO = 10
"""How many times as long as the median activation a sink is."""


def sinks(lengths: Tensor, of: Tensor | None = None) -> Tensor:
    """bool, like lengths: activations of attention sinks. of: the lengths whose median counts; by default these.

    They belong to a few tokens, the first as a rule, and are a hundred times longer than others. Few as they are, they
    hold most of all squares: an autoencoder that is trained on them learns little else, and one that is not cannot
    reconstruct them.
    """
    return lengths > SINK_RATIO * (lengths if of is None else of).median()


class ActivationSite(Config):
    """Which activations of which model."""

    model: str = Field(default="minilm", description="minilm, smollm2, or a directory with a transformers model")
    layer: int = Field(
        default=3, ge=0, le=1000, description="activations after so many blocks; 0: the input of the first"
    )
    context_size: int = Field(default=128, ge=4, le=8192, description="tokens per sequence, special ones included")
    precision: Precision = Field(default="fp32", description="of the model; activations are stored in bf16")


class CollectionConfig(Config):
    """What was collected, as config.json stores it."""

    site: ActivationSite | None
    """None: any other module than that of a pretrained model or a run"""
    text: str
    about: dict[str, JsonValue]
    """What else tells these activations from others, such as checksums"""
    sequences: int
    d_in: int
    context_size: int
    threads: int

    @property
    def checksum(self) -> str:
        """Activations are a function of what was requested."""
        return digest(canonical(self.model_dump(mode="json")))[:16]


class CollectionRecord(Config):
    """How much there is in <store>/activations/<name>."""

    name: str
    checksum: str
    d_in: int
    context_size: int
    activations: int
    held_out: int
    special: int


@dataclass(frozen=True)
class Collection:
    """A finished collection, read where it lies."""

    path: Path
    config: CollectionConfig

    @classmethod
    def open(cls, store: Store, name: str) -> Collection:
        path = folder(store, name)
        if not (path / CONFIG).exists():
            raise not_allowed("activations", name, [other.name for other in collections(store)])
        return cls.at(path)

    @classmethod
    def at(cls, path: Path) -> Collection:
        """By the folder."""
        collection = cls.begun(path)
        if missing := collection.missing():
            raise UserError(
                f"activations: {path.name!r} is not complete: {len(missing)} of {collection.shards} parts are missing. "
                "The command that began it goes on with it."
            )
        return collection

    @classmethod
    def begun(cls, path: Path) -> Collection:
        """Also one that is not complete."""
        try:
            return cls(path, CollectionConfig.model_validate(read_sealed(path / CONFIG)))
        except (OSError, ValueError, CorruptFileError) as damage:
            raise UserError(f"activations: {str(path)!r} cannot be read ({damage}).") from None

    def record(self) -> CollectionRecord:
        return CollectionRecord(
            name=self.path.name,
            checksum=self.config.checksum,
            d_in=self.d_in,
            context_size=self.context_size,
            activations=len(self.places("train")),
            held_out=len(self.places("held out")),
            special=int((self.flags != CONTENT).sum()) * len(self.tokens),
        )

    @property
    def shards(self) -> int:
        return -(-self.config.sequences // SHARD)

    def missing(self) -> list[int]:
        return [index for index in range(self.shards) if not shard_path(self.path, index).exists()]

    @property
    def d_in(self) -> int:
        return self.config.d_in

    @property
    def context_size(self) -> int:
        return self.config.context_size

    @functools.cached_property
    def _tensors(self) -> dict[tuple[str, str], Tensor]:
        return {}

    def _tensor(self, file: str, name: str) -> Tensor:
        """Memory-mapped: read from disk only where it is looked at."""
        if (file, name) not in self._tensors:
            try:
                self._tensors[file, name] = load_file(self.path / file)[name]
            except (OSError, KeyError, SafetensorError) as damage:
                place = str(self.path / file)
                raise UserError(
                    f"activations: {place!r} cannot be read ({damage}). Remove it, and collect again."
                ) from None
        return self._tensors[file, name]

    @property
    def tokens(self) -> Tensor:
        """(sequences, context_size) ids"""
        return self._tensor(TOKENS, "ids")

    @property
    def flags(self) -> Tensor:
        """(context_size,): CONTENT, SPECIAL or FIRST; the same for all sequences"""
        return self._tensor(TOKENS, "flags")

    def sequences(self, split: Split) -> Tensor:
        held = self._tensor(TOKENS, "held").bool()
        return (held if split == "held out" else ~held).nonzero().flatten()

    def places(self, split: Split, flags: tuple[int, ...] = (CONTENT,)) -> Tensor:
        """(n, 2): sequence and position of every state of a split with one of the flags."""
        wanted = torch.isin(self.flags, torch.tensor(flags)).nonzero().flatten()
        return torch.cartesian_prod(self.sequences(split), wanted)

    def _shard(self, index: int) -> Tensor:
        """(sequences × context_size, d_in) bfloat16"""
        file = shard_path(self.path, index).name
        shard = self._tensor(file, "activations")
        sequences = min(SHARD, self.config.sequences - index * SHARD)
        if shard.dtype != torch.bfloat16 or shard.numel() != sequences * self.context_size * self.d_in:
            raise UserError(
                f"activations: {str(self.path / file)!r} does not hold {sequences} sequences of {self.context_size} "
                f"states of {self.d_in} numbers, as its collection says. Remove it, and collect again."
            )
        return shard.view(-1, self.d_in)

    def activations(self, places: Tensor) -> Tensor:
        """(n, d_in) float32 at (n, 2) sequences and positions."""
        shard, inside = places[:, 0] // SHARD, (places[:, 0] % SHARD) * self.context_size + places[:, 1]
        rows = torch.empty(len(places), self.d_in, dtype=torch.bfloat16)
        order = shard.argsort(stable=True)
        shards, counts = shard[order].unique_consecutive(return_counts=True)
        for index, here in zip(shards.tolist(), order.split(counts.tolist()), strict=True):
            rows.index_copy_(0, here, self._shard(index).index_select(0, inside[here]))
        return rows.float()


def flags_of(length: int, ends: tuple[list[int], list[int]]) -> Tensor:
    """(length,) of a sequence with special tokens at its ends."""
    flags = torch.full((length,), CONTENT, dtype=torch.uint8)
    flags[: len(ends[0])] = SPECIAL
    flags[length - len(ends[1]) :] = SPECIAL
    flags[0] = FIRST
    return flags


def folder(store: Store, name: str) -> Path:
    if not NAME.fullmatch(name):
        raise UserError(f"name: {name!r} is no name. Allowed: letters, digits, dots, dashes and underscores.")
    return store.root / "activations" / name


def collections(store: Store) -> list[Path]:
    place = store.root / "activations"
    return sorted(path for path in place.iterdir() if (path / CONFIG).exists()) if place.is_dir() else []


def shard_path(path: Path, index: int) -> Path:
    return path / f"shard-{index:05d}.safetensors"
