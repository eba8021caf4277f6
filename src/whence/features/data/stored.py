"""States that were collected."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.features.activations.sinks import sinks
from whence.features.activations.store import CONTENT, Activations, Split
from whence.features.data.base import Data, States
from whence.store.files import canonical, digest

PART = 8192
"""States looked at together."""


class Stored(Data):
    """Hidden states of a model, as `whence features collect` keeps them.

    Special and first tokens are left out, and states that attention rests on.
    """

    usual_l0 = 16

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="the folder of a collection")] = "",
        checksum: Annotated[
            str, Field(description="of what was collected; filled in: other states are other data")
        ] = "",
    ) -> None:
        self.path, self.checksum = Path(path), checksum

    @functools.cached_property
    def activations(self) -> Activations:
        found = Activations.at(self.path)
        if self.checksum and self.checksum != _address(found):
            raise UserError(
                f"data: {str(self.path)!r} has changed since this was asked for. Allowed: the same states.",
                field="data",
            )
        return found

    def checksum_now(self) -> str:
        return _address(self.activations)

    def check(self) -> None:
        _ = self.activations

    @property
    def width(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride] (read, never set)
        return self.activations.width

    @property
    def context(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.activations.context

    @property
    def ends(self) -> tuple[int, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        content = (self.activations.flags == CONTENT).nonzero().flatten()
        return int(content[0]), int(content[-1])

    @property
    def usual_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.usual_l0 * self.context  # so that a group of features for every position can fill a code

    @functools.cached_property
    def _places(self) -> dict[Split, Tensor]:
        splits: tuple[Split, ...] = ("train", "held out")
        places: dict[Split, Tensor] = {split: self.activations.places(split) for split in splits}
        lengths = {
            split: torch.cat([self.activations.states(some).norm(dim=1) for some in those.split(PART)])
            for split, those in places.items()
        }
        return {split: those[~sinks(lengths[split], lengths["train"])] for split, those in places.items()}

    def places(self, split: Split) -> Tensor:
        """(n, 2): sequence and position of every state of a split, in the order that they are given in."""
        return self._places[split]

    def draw(self, generator: torch.Generator, count: int) -> States:
        places = self.places("train")
        return self._at(places[torch.randint(len(places), (count,), generator=generator)])

    def everything(self) -> Iterator[States]:
        return map(self._at, self.places("train").split(PART))

    def held_out(self, stream: int = 0) -> Iterator[States]:
        return map(self._at, self.places("held out").split(PART))

    def _at(self, places: Tensor) -> States:
        return self.activations.states(places), places[:, 1]


def _address(found: Activations) -> str:
    """States are a function of what was asked for."""
    return digest(canonical(found.spec))[:16]
