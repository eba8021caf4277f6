"""Activations on disk, each with the token, the position and the sequence that it belongs to.

<store>/activations/<name> is a folder of data (`whence.store.data`) with the parts
  tokens     ids (sequences, context_size), flags of positions, and which sequences are held out
  shard-*    bfloat16 (sequences of the shard, context_size, d_in)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, JsonValue
from torch import Tensor

from whence.config import Config
from whence.errors import UserError, not_allowed
from whence.store import disk
from whence.store.data import CONFIG, DataFolder
from whence.store.disk import CorruptFileError
from whence.store.records import parse_as
from whence.store.runs import Store

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TOKENS = "tokens"
SHARD = 64
"""Sequences per file."""
Precision = Literal["fp32", "bf16"]
Split = Literal["train", "held out"]
CONTENT, SPECIAL, FIRST = 0, 1, 2
"""Flags of a position: an ordinary token, one that the tokenizer put there, the first of its sequence."""
SINK_RATIO = 10
"""Norm of an attention sink, as a multiple of the median norm."""


def sinks(lengths: Tensor, of: Tensor | None = None) -> Tensor:
    """Which activations are attention sinks, bool, from their norms. of: norms whose median is the reference.

    Sinks are activations of a few tokens, usually the first, with a norm about a hundred times that of others. They
    hold most of the total variance: an autoencoder that is trained on them learns little else, and one that is not
    trained on them cannot reconstruct them.
    """
    return lengths > SINK_RATIO * (lengths if of is None else of).median()


class ActivationSite(Config):
    """Model, layer and context of activations."""

    model: str = Field(default="minilm", description="minilm, smollm2, or a directory with a transformers model")
    layer: int = Field(
        default=3, ge=0, le=1000, description="number of blocks before the activations; 0: the input of the first block"
    )
    context_size: int = Field(default=128, ge=4, le=8192, description="tokens per sequence, with special tokens")
    precision: Precision = Field(default="fp32", description="precision of the model; activations are stored in bf16")


class CollectionConfig(Config):
    """What was requested, as config.json stores it."""

    site: ActivationSite | None
    """None: any other module than that of a pretrained model or a run"""
    text: str
    about: dict[str, JsonValue]
    """What else tells these activations from others, such as checksums"""
    sequences: int
    d_in: int
    context_size: int
    tokens: str
    """Checksum of the tokens, which all other parts belong to"""
    threads: int

    @property
    def parts(self) -> list[str]:
        return [TOKENS, *map(shard_name, range(-(-self.sequences // SHARD)))]


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
    """Stored activations, read from disk on demand. Raises `UserError` if a file is damaged.

    `whence.features.collect` returns one.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16))
        >>> collection = whence.features.collect_module(model, "1", torch.randint(50, (40, 12)), d_in=16, name="linear")
        >>> collection.tokens.shape, collection.d_in, collection.context_size
        (torch.Size([40, 12]), 16, 12)
    """

    data: DataFolder
    config: CollectionConfig

    @classmethod
    def open(cls, store: Store, name: str) -> Collection:
        path = folder(store, name)
        if not disk.kind_of(path / CONFIG):
            raise not_allowed("activations", name, [other.name for other in collections(store)])
        return cls.at(path)

    @classmethod
    def at(cls, path: Path) -> Collection:
        """By the folder."""
        collection = cls.begun(path)
        if not collection.data.complete:
            parts, missing = collection.data.config.parts, collection.data.missing()
            raise UserError(
                f"activations: expected a complete collection, got {path.name!r} with {len(missing)} of {len(parts)} "
                "parts missing. Repeat the command that collected it to resume."
            )
        return collection

    @classmethod
    def begun(cls, path: Path) -> Collection:
        """Also one that is not complete."""
        data = DataFolder(path)
        with _readable(path):
            return cls(data, parse_as(CollectionConfig, data.config.request, path / CONFIG))

    @property
    def path(self) -> Path:
        return self.data.path

    @property
    def checksum(self) -> str:
        """Of all that was collected."""
        with _readable(self.path):
            return self.data.checksum

    def check(self) -> None:
        """Every file, unless this process has checked it before."""
        with _readable(self.path):
            self.data.check()

    def record(self) -> CollectionRecord:
        return CollectionRecord(
            name=self.path.name,
            checksum=self.checksum if self.data.complete else "",
            d_in=self.d_in,
            context_size=self.context_size,
            activations=len(self.places("train")),
            held_out=len(self.places("held out")),
            special=int((self.flags != CONTENT).sum()) * len(self.tokens),
        )

    @property
    def d_in(self) -> int:
        return self.config.d_in

    @property
    def context_size(self) -> int:
        return self.config.context_size

    @functools.cached_property
    def _about(self) -> dict[str, Tensor]:
        sequences, context_size = self.config.sequences, self.context_size
        ids, held = (torch.int32, (sequences, context_size)), (torch.bool, (sequences,))
        return self._read(TOKENS, {"ids": ids, "held": held, "flags": (torch.uint8, (context_size,))})

    def _read(self, part: str, kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]]) -> dict[str, Tensor]:
        """Tensors of a part, memory-mapped."""
        with _readable(self.path):
            tensors = self.data.read(part)
            if {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()} != kinds:
                raise CorruptFileError(self.path, f"{part} does not hold tensors of the shapes that {CONFIG} implies")
        return tensors

    @property
    def tokens(self) -> Tensor:
        """(sequences, context_size) ids"""
        return self._about["ids"]

    @property
    def flags(self) -> Tensor:
        """(context_size,): CONTENT, SPECIAL or FIRST; the same for all sequences"""
        return self._about["flags"]

    def sequences(self, split: Split) -> Tensor:
        held = self._about["held"]
        return (held if split == "held out" else ~held).nonzero().flatten()

    def places(self, split: Split, flags: tuple[int, ...] = (CONTENT,)) -> Tensor:
        """(n, 2): sequence and position of every activation of a split with one of the flags."""
        wanted = torch.isin(self.flags, torch.tensor(flags)).nonzero().flatten()
        return torch.cartesian_prod(self.sequences(split), wanted)

    @functools.cached_property
    def _shards(self) -> dict[int, Tensor]:
        return {}

    def _shard(self, index: int) -> Tensor:
        """(sequences × context_size, d_in) bfloat16"""
        if index not in self._shards:
            shape = (min(SHARD, self.config.sequences - index * SHARD), self.context_size, self.d_in)
            tensors = self._read(shard_name(index), {"activations": (torch.bfloat16, shape)})
            self._shards[index] = tensors["activations"].flatten(0, 1)
        return self._shards[index]

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
        raise UserError(
            "name: expected at most 64 letters, digits, dots, dashes and underscores, beginning with a letter or a "
            f"digit, got {name!r}."
        )
    return store.place("activations") / name


def collections(store: Store) -> list[Path]:
    return [path for path in disk.entries(store.place("activations")) if disk.kind_of(path / CONFIG)]


def shard_name(index: int) -> str:
    """The name of a part."""
    return f"shard-{index:05d}"


@contextmanager
def _readable(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, CorruptFileError) as damage:
        raise UserError(
            f"activations: {path.name!r} cannot be read ({disk.explain(damage)}). See 'whence runs repair'."
        ) from None
