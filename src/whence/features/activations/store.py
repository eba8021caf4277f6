"""Hidden states on disk, each with the token, the position and the sequence that it belongs to.

<store>/activations/<name>/spec.json            sealed  what was collected
                           tokens.safetensors           ids (sequences, context), and which sequences are held out
                           shard-*.safetensors          states, bfloat16 (sequences of the shard, context, width)
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from whence.errors import UserError, not_allowed
from whence.store.files import CorruptFileError, read_sealed
from whence.store.runs import Store

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SHARD = 64
"""Sequences per file."""
Split = Literal["train", "held out"]
CONTENT, SPECIAL, FIRST = 0, 1, 2
"""Flags of a position: an ordinary token, one that the tokenizer put there, the first of its sequence."""


@dataclass(frozen=True)
class Activations:
    """A finished collection, read where it lies."""

    path: Path
    spec: dict[str, Any]

    @classmethod
    def open(cls, store: Store, name: str) -> Activations:
        path = folder(store, name)
        if not (path / "spec.json").exists():
            raise not_allowed("activations", name, [found.name for found in collections(store)])
        return cls.at(path)

    @classmethod
    def at(cls, path: Path) -> Activations:
        """By the folder."""
        found = cls.begun(path)
        if missing := found.missing():
            raise UserError(
                f"activations: {path.name!r} is not complete: {len(missing)} of {found.shards} parts are missing. "
                "The command that began it goes on with it.",
                field="activations",
            )
        return found

    @classmethod
    def begun(cls, path: Path) -> Activations:
        """Also one that is not complete."""
        try:
            return cls(path, read_sealed(path / "spec.json"))
        except (OSError, CorruptFileError) as damage:
            raise UserError(f"activations: {str(path)!r} cannot be read ({damage}).", field="activations") from None

    def facts(self) -> dict[str, int]:
        """How much there is."""
        return {
            "width": self.width,
            "context": self.context,
            "states": len(self.places("train")),
            "held_out": len(self.places("held out")),
            "special": int((self.flags != CONTENT).sum()) * len(self.tokens),
        }

    @property
    def shards(self) -> int:
        return -(-self.spec["sequences"] // SHARD)

    def missing(self) -> list[int]:
        return [index for index in range(self.shards) if not shard_path(self.path, index).exists()]

    @property
    def width(self) -> int:
        return self.spec["width"]

    @property
    def context(self) -> int:
        return self.spec["context"]

    @functools.cached_property
    def _about(self) -> dict[str, Tensor]:
        try:
            return load_file(self.path / "tokens.safetensors")
        except (OSError, SafetensorError) as damage:
            raise self._damaged("tokens.safetensors", damage) from None

    def _damaged(self, file: str, damage: Exception) -> UserError:
        return UserError(
            f"activations: {str(self.path / file)!r} cannot be read ({damage}). Remove it, and collect again.",
            field="activations",
        )

    @property
    def tokens(self) -> Tensor:
        """(sequences, context) ids"""
        return self._about["ids"]

    @property
    def flags(self) -> Tensor:
        """(context,): CONTENT, SPECIAL or FIRST; the same for all sequences"""
        return self._about["flags"]

    def sequences(self, split: Split) -> Tensor:
        held = self._about["held"].bool()
        return (held if split == "held out" else ~held).nonzero().flatten()

    def places(self, split: Split, flags: tuple[int, ...] = (CONTENT,)) -> Tensor:
        """(n, 2): sequence and position of every state of a split with one of the flags."""
        wanted = torch.isin(self.flags, torch.tensor(flags)).nonzero().flatten()
        return torch.cartesian_prod(self.sequences(split), wanted)

    def states(self, places: Tensor) -> Tensor:
        """(n, width) float32 at (n, 2) sequences and positions."""
        shard = (places[:, 0] // SHARD).numpy()
        inside = ((places[:, 0] % SHARD) * self.context + places[:, 1]).numpy()
        found = np.empty((len(places), self.width), np.int16)
        order = np.argsort(shard, kind="stable")
        begins = np.flatnonzero(np.diff(shard[order], prepend=-1))
        for here in np.split(order, begins[1:]) if len(order) else []:
            found[here] = self._mapped(int(shard[here[0]]))[inside[here]]
        return torch.from_numpy(found).view(torch.bfloat16).float()

    @functools.cached_property
    def _maps(self) -> dict[int, np.ndarray]:
        return {}

    def _mapped(self, index: int) -> np.ndarray:
        """A shard as int16 (states, width), read from disk only where it is looked at."""
        if index not in self._maps:
            path = shard_path(self.path, index)
            try:
                with path.open("rb") as file:
                    length = int.from_bytes(file.read(8), "little")
                    about = json.loads(file.read(length))["states"]
                begin = 8 + length + about["data_offsets"][0]
                count = about["shape"][0] * about["shape"][1]
                self._maps[index] = np.memmap(path, np.int16, "r", begin, (count, self.width))
            except (OSError, ValueError, KeyError, MemoryError, OverflowError) as damage:
                raise self._damaged(path.name, damage) from None
        return self._maps[index]


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
            f"name: {name!r} is no name. Allowed: letters, digits, dots, dashes and underscores.", field="name"
        )
    return store.root / "activations" / name


def collections(store: Store) -> list[Path]:
    place = store.root / "activations"
    return sorted(path for path in place.iterdir() if (path / "spec.json").exists()) if place.is_dir() else []


def shard_path(path: Path, index: int) -> Path:
    return path / f"shard-{index:05d}.safetensors"
