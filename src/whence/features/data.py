"""Data that autoencoders are trained on: activations with their positions, some of them held out."""

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
SYNTHETIC_PARTS, SYNTHETIC_HELD_OUT = 8, 5
"""Parts of what is fitted, and of what is held out"""


def by_position(rows: Tensor, positions: Tensor, context_size: int) -> Tensor:
    """(context_size, m) double: sums of the rows (n, m) at each position."""
    where = (positions[:, None] == torch.arange(context_size, device=positions.device)).to(rows.dtype)
    return (where.mT @ rows).double()  # a product is many times faster than adding row by row


def sum_of_squares(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.double)) ** 2


@dataclass(frozen=True)
class DataShape:
    """What a dictionary of the data needs to know of them. Positions run from 0 to context_size − 1."""

    d_in: int
    context_size: int
    ends: tuple[int, int]
    """The first and the last position of activations"""
    default_d_sae: int
    default_l0: int


class ActivationData(Variant):
    """Activations to learn features of."""

    held_out_name: ClassVar[str] = "these held-out texts"
    """Held-out data that all seeds share; empty where every seed draws its own."""

    @property
    def shape(self) -> DataShape:
        raise NotImplementedError

    def draw(self, generator: torch.Generator, count: int) -> ActivationBatch:
        """Training states, at random."""
        raise NotImplementedError

    def everything(self) -> Iterator[ActivationBatch]:
        """Training states, part by part, for what is fitted rather than trained."""
        raise NotImplementedError

    def held_out(self, stream: int = 0) -> Iterator[ActivationBatch]:
        """States never trained on, part by part. Data that can be drawn are drawn anew for every `stream`."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises UserError, before any work, where there is nothing to draw from."""

    def verify(self) -> None:
        """Raises UserError unless all that is stored of them is what was written. Reads every byte once a process."""

    def truth(self) -> dict[str, Tensor]:
        """By kind, directions (features, d_in) that are known to be there; empty where nobody knows."""
        return {}


DATA: Registry[ActivationData] = Registry(__name__, ActivationData)


STREAM = "planted"
"""Part of every seed, so that another name would give other data"""


class Synthetic(ActivationData):
    """Sums of a few of many directions. Half of them are free: active anywhere. The others are position-specific, each
    active in one of `windows` parts of the context. rare: they are as frequent as free ones in their part, so rarer
    overall; equal: as frequent as free ones overall, so more frequent in their part."""

    held_out_name = ""

    def __init__(
        self,
        *,
        regime: Annotated[
            Literal["rare", "equal"], Field(description="how frequent position-specific features are")
        ] = "rare",
        d_in: Annotated[int, Field(ge=2, description="numbers per state")] = 64,
        features: Annotated[
            int, Field(ge=2, multiple_of=2, description="true features, half of them position-specific")
        ] = 192,
        context_size: Annotated[int, Field(ge=2, description="positions")] = 32,
        windows: Annotated[int, Field(ge=1, description="parts of the context")] = 4,
        rate: Annotated[float, Field(gt=0, lt=1, description="how often a free feature is active")] = 0.04,
        noise: Annotated[float, Field(ge=0, description="deviation of what is added to every number")] = 0.02,
        world: Annotated[int, Field(ge=0, description="which directions: another number, other ones")] = 0,
    ) -> None:
        if windows > context_size:
            raise ValueError("windows: no more than positions")
        if regime == "equal" and rate * windows >= 1:
            raise ValueError("rate: position-specific features cannot be as frequent as that in their window")
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
        """A third more features than there are true ones, in whole groups for every position, as many active as are on
        average."""
        d_sae = -(-4 * self.features // (3 * self.context_size)) * self.context_size
        l0 = max(1, round(float(self.rates.sum(1).mean())))
        return DataShape(self.d_in, self.context_size, (0, self.context_size - 1), d_sae, l0)

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
    """Activations of a model, as `whence features collect` stores them.

    Special and first tokens are left out, and attention sinks.
    """

    name = "stored"

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="the folder of a collection")] = "",
        checksum: Annotated[
            str, Field(description="of what was collected; filled in: other activations are other data")
        ] = "",
    ) -> None:
        self.path, self.checksum = Path(path), checksum

    @functools.cached_property
    def collection(self) -> Collection:
        collection = Collection.at(self.path)
        if self.checksum and self.checksum != collection.checksum:
            raise UserError(
                f"data: {str(self.path)!r} has changed since this was requested. Allowed: the same activations."
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
        # so many features that a group of them for every position can fill a code
        return DataShape(d_in, context_size, (int(content[0]), int(content[-1])), 16 * context_size, 16)

    @functools.cached_property
    def places(self) -> dict[Split, Tensor]:
        """(n, 2): sequence and position of every state of a split, in the order that they are given in."""
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
    """The data, checked; what is impossible about them is the user's to mend."""
    try:
        data = choice.build()
    except ValueError as error:
        raise UserError(f"data: {error}") from None
    data.check()
    return data
