"""What data are: true signals in fine detail, of which the model is shown a coarse version."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from whence.errors import UserError
from whence.fields.baselines import resize
from whence.registry import Variant

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SHRINK = 0.75
"""From one size of a picture to the next: crops of all sizes look like crops of photographs."""


class Data(Variant):
    """Signals over k axes, split by whole signals."""

    axes: int
    channels: int
    true: tuple[int, ...]
    """Points of the true signal"""
    inputs: tuple[int, ...]
    """Points of what the model is shown: averages over cells of the true signal"""

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        """(rows, channels, *true), values from 0 to 1."""
        raise NotImplementedError

    def at(self, signals: Tensor, size: tuple[int, ...]) -> Tensor:
        """The true signals on a coarser grid."""
        return signals if tuple(signals.shape[2:]) == tuple(size) else resize(signals, size, "area")


class Pictures(Data):
    """Crops of pictures, at every size at which they are large enough."""

    axes, channels = 2, 3

    def __init__(self, size: int, factor: int) -> None:
        self.inputs, self.true = (size, size), (size * factor, size * factor)

    def files(self, split: Split) -> list[Path]:
        raise NotImplementedError

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        sizes = [_sizes(path, path.stat().st_mtime_ns, self.true[0]) for path in self.files(split)]
        return torch.stack([self._crop(generator, sizes, split) for _ in range(rows)])

    def _crop(self, generator: torch.Generator, pictures: list[list[Tensor]], split: Split) -> Tensor:
        def below(count: int) -> int:
            return int(torch.randint(count, (), generator=generator))

        sizes = pictures[below(len(pictures))]
        picture, side = sizes[below(len(sizes))], self.true[0]
        top, left = below(picture.shape[1] - side + 1), below(picture.shape[2] - side + 1)
        crop = picture[:, top : top + side, left : left + side].float() / 255
        if split != "train":
            return crop
        turn = below(8)
        crop = crop.flip(1) if turn & 1 else crop
        crop = crop.flip(2) if turn & 2 else crop
        crop = crop.transpose(1, 2) if turn & 4 else crop
        return crop[torch.randperm(3, generator=generator)]


@functools.lru_cache(maxsize=64)
def _sizes(path: Path, _changed: int, side: int) -> list[Tensor]:
    """A picture and smaller versions of it, in bytes, as long as a crop fits."""
    from whence.fields import pictures

    picture = pictures.read(path)
    if min(picture.shape[1:]) < side:
        raise UserError(
            f"data: {path.name} is {picture.shape[2]}×{picture.shape[1]}. Allowed: pictures of {side}×{side} or more.",
            field="data",
        )
    found, scale = [], 1.0
    while True:
        height, width = (int(count * scale) for count in picture.shape[1:])
        if min(height, width) < side:
            return found
        smaller = picture if scale == 1 else resize(picture[None], (height, width), "area")[0]
        found.append((smaller * 255).round().clamp(0, 255).to(torch.uint8))
        scale *= SHRINK
