"""Training data of autoencoders: activations with their positions, some of them held out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whence.errors import UserError
from whence.features.activations.store import CONTENT, Collection, Split, sinks
from whence.random import generator
from whence.registry import Choice, Registry, Variant

ActivationBatch = tuple[Tensor, Tensor]
"""(n, d_in) activations, (n,) positions"""
PART = 8192
"""Activations in a part"""
LARGEST_TABLE = 2**26
"""Values of the table of true features that is held in memory"""
SYNTHETIC_PARTS, SYNTHETIC_HELD_OUT = 8, 5
"""Parts of the data that are fitted, and held out"""


def by_position(rows: Tensor, positions: Tensor, context_size: int) -> Tensor:
    """(context_size, m) double: sums of the rows (n, m) at each position."""
    where = (positions[:, None] == torch.arange(context_size, device=positions.device)).to(rows.dtype)
    return (where.mT @ rows).double()  # a product is many times faster than adding row by row


def sum_of_squares(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.double)) ** 2


@dataclass(frozen=True)
class DataShape:
    """The shape of activations, and default sizes of dictionaries. Positions run from 0 to context_size − 1."""

    d_in: int
    context_size: int
    ends: tuple[int, int]
    """The first and the last position of activations"""
    default_d_sae: int
    default_l0: int
    features: int = 0
    """True features of synthetic activations"""


class ActivationData(Variant):
    """Activations to train an autoencoder on."""

    held_out_name: ClassVar[str] = "these held-out texts"
    """Name of the held-out data that all seeds share; empty where every seed draws its own."""

    @property
    def shape(self) -> DataShape:
        raise NotImplementedError

    def draw(self, generator: torch.Generator, count: int) -> ActivationBatch:
        """Random training activations."""
        raise NotImplementedError

    def everything(self) -> Iterator[ActivationBatch]:
        """All training activations, in parts, to fit means and scales."""
        raise NotImplementedError

    def held_out(self, stream: int = 0) -> Iterator[ActivationBatch]:
        """Held-out activations, in parts. Synthetic data are drawn anew for every `stream`."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise UserError if there are no data, before anything is computed."""

    def verify(self) -> None:
        """Raise UserError if stored data are damaged. Reads every byte, once per process."""

    def truth(self) -> dict[str, Tensor]:
        """True directions (features, d_in) by kind; empty if unknown."""
        return {}


DATA: Registry[ActivationData] = Registry(__name__, ActivationData)


STREAM = "planted"
"""Part of every random seed: changing it changes all synthetic data."""


class Synthetic(ActivationData):
    """Synthetic activations: sparse sums of known directions, half of them free and half position-specific.

    Free features are active at any position, position-specific ones in one of `windows` ranges of the context. In the
    regime `rare`, position-specific features are as frequent as free ones within their range, so that they are rarer
    overall. In the regime `equal`, they are as frequent overall, so that they are more frequent within their range.
    """

    held_out_name = ""

    def __init__(
        self,
        *,
        regime: Annotated[
            Literal["rare", "equal"],
            Field(description="overall frequency of position-specific features, compared with free ones"),
        ] = "rare",
        d_in: Annotated[int, Field(ge=2, le=2**16, description="dimensions of an activation")] = 64,
        features: Annotated[
            int, Field(ge=2, le=2**20, multiple_of=2, description="true features, half of them position-specific")
        ] = 192,
        context_size: Annotated[int, Field(ge=2, le=2**20, description="positions")] = 32,
        windows: Annotated[int, Field(ge=1, le=2**16, description="ranges of the context")] = 4,
        rate: Annotated[float, Field(gt=0, lt=1, description="probability that a free feature is active")] = 0.04,
        noise: Annotated[
            float, Field(ge=0, le=1e6, description="standard deviation of Gaussian noise per dimension; 0: none")
        ] = 0.02,
        world: Annotated[int, Field(ge=0, le=2**31, description="random seed of the true directions")] = 0,
    ) -> None:
        if features * max(d_in, context_size) > LARGEST_TABLE:
            raise ValueError(
                f"features: expected at most {LARGEST_TABLE:,} values, got {features} × {max(d_in, context_size)}. "
                "Reduce features, d_in or context_size."
            )
        if windows > context_size:
            raise ValueError(f"windows: expected at most {context_size}, the context size, got {windows}")
        if regime == "equal" and rate * windows >= 1:
            raise ValueError(
                f"rate: expected less than {1 / windows:g} in the regime 'equal', got {rate:g}: position-specific "
                f"features are active {windows} times as often within their range"
            )
        self.d_in, self.context_size, self.windows = d_in, context_size, windows
        self.features, self.rate, self.noise, self.world = features, rate, noise, world
        self.inside = rate * windows if regime == "equal" else rate

    @functools.cached_property
    def directions(self) -> Tensor:
        """(features, d_in): the free first, then the position-specific"""
        drawn = torch.randn(self.features, self.d_in, generator=generator(STREAM, self.world))
        return nn.functional.normalize(drawn, dim=1)

    @functools.cached_property
    def rates(self) -> Tensor:
        """(context_size, features)"""
        half = self.features // 2
        window = torch.arange(self.context_size) * self.windows // self.context_size
        position_specific = (window[:, None] == torch.arange(half) % self.windows) * self.inside
        return torch.cat([torch.full((self.context_size, half), self.rate), position_specific], 1)

    @property
    def shape(self) -> DataShape:
        """By default, a third more features than true ones, rounded up to a multiple of the context size, and the true
        mean number of active features."""
        d_sae = -(-4 * self.features // (3 * self.context_size)) * self.context_size
        l0 = max(1, round(float(self.rates.sum(1).mean())))
        return DataShape(self.d_in, self.context_size, (0, self.context_size - 1), d_sae, l0, self.features)

    def draw(self, generator: torch.Generator, count: int) -> ActivationBatch:
        positions = torch.randint(self.context_size, (count,), generator=generator)
        active = torch.rand(count, self.features, generator=generator) < self.rates[positions]
        strength = 0.5 + torch.rand(count, self.features, generator=generator)
        noise = self.noise * torch.randn(count, self.d_in, generator=generator)
        return (active * strength) @ self.directions + noise, positions

    def everything(self) -> Iterator[ActivationBatch]:
        return (self.draw(generator(STREAM, self.world, "everything", part), PART) for part in range(SYNTHETIC_PARTS))

    def held_out(self, stream: int = 0) -> Iterator[ActivationBatch]:
        return (
            self.draw(generator(STREAM, self.world, "held out", stream, part), PART)
            for part in range(SYNTHETIC_HELD_OUT)
        )

    def truth(self) -> dict[str, Tensor]:
        free, position_specific = self.directions.chunk(2)
        return {"free": free, "position_specific": position_specific}


class StoredActivations(ActivationData):
    """Collected activations of a model ('whence features collect'), without special tokens, first tokens and sinks."""

    name = "stored"

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="directory of a collection")] = "",
        checksum: Annotated[str, Field(description="checksum of the collection; filled in automatically")] = "",
    ) -> None:
        self.path, self.checksum = Path(path), checksum

    @functools.cached_property
    def collection(self) -> Collection:
        collection = Collection.at(self.path)
        if self.checksum and self.checksum != collection.checksum:
            raise UserError(
                f"data: expected {str(self.path)!r} with checksum {self.checksum}, got {collection.checksum}: the "
                "collection has changed. Collect the same activations again, or start a new comparison."
            )
        return collection

    def checksum_now(self) -> str:
        return self.collection.checksum

    def check(self) -> None:
        _ = self.collection

    def verify(self) -> None:
        self.collection.check()

    @property
    def shape(self) -> DataShape:
        content = (self.collection.flags == CONTENT).nonzero().flatten()
        d_in, context_size = self.collection.d_in, self.collection.context_size
        # 16 features per position: a group of features for each position can then fill a whole code
        return DataShape(d_in, context_size, (int(content[0]), int(content[-1])), 16 * context_size, 16)

    @functools.cached_property
    def places(self) -> dict[Split, Tensor]:
        """(n, 2): sequence and position of every activation of a split, in order."""
        train, held_out = self.collection.places("train"), self.collection.places("held out")
        lengths = self._lengths(train)
        without_sinks = held_out[~sinks(self._lengths(held_out), lengths)]
        return {"train": train[~sinks(lengths)], "held out": without_sinks}

    def _lengths(self, places: Tensor) -> Tensor:
        return torch.cat([self.collection.activations(some).norm(dim=1) for some in places.split(PART)])

    def draw(self, generator: torch.Generator, count: int) -> ActivationBatch:
        places = self.places["train"]
        return self._at(places[torch.randint(len(places), (count,), generator=generator)])

    def everything(self) -> Iterator[ActivationBatch]:
        return map(self._at, self.places["train"].split(PART))

    def held_out(self, stream: int = 0) -> Iterator[ActivationBatch]:
        return map(self._at, self.places["held out"].split(PART))

    def _at(self, places: Tensor) -> ActivationBatch:
        return self.collection.activations(places), places[:, 1]


def build_data(choice: Choice[ActivationData]) -> ActivationData:
    """The data, checked. Raises UserError for impossible options."""
    try:
        data = choice.build()
    except ValueError as error:
        raise UserError(f"data: {error}") from None
    data.check()
    return data
