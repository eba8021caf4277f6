"""Base classes of data: target signals at a fine resolution, of which the model receives a coarse version."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from whence.errors import UserError
from whence.fields.baselines import resize
from whence.fields.images import read, read_size
from whence.registry import Variant

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SHRINK = 0.75
"""Ratio between successive sizes of an image from which crops are drawn"""
LARGEST = 1536
"""Images are reduced to this longer side in pixels; crops of larger ones would be mostly blur"""
T = TypeVar("T")


class FieldData(Variant):
    """Signals over k axes, split by whole signals."""

    held_out_name: ClassVar[str] = "these held-out signals"
    """Name of held-out data that all seeds share; empty: every seed has its own"""

    def __init__(self, axes: int, channels: int, size: int, factor: int) -> None:
        """size: pixels per axis of the input. Each is the mean of factor^axes pixels of the target."""
        self.axes, self.channels = axes, channels
        self.inputs, self.true = (size,) * axes, (size * factor,) * axes

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        """(rows, channels, *true), values from 0 to 1."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise UserError, before any work, if no signals can be drawn."""
        for split in SPLITS:
            self.draw(torch.Generator().manual_seed(0), 1, split)

    def at(self, signals: Tensor, size: tuple[int, ...]) -> Tensor:
        """The target signals on a coarser grid."""
        return signals if tuple(signals.shape[2:]) == tuple(size) else resize(signals, size, "area")


class Crops(FieldData):
    """Random crops of signals that are at least as large as the targets."""

    def signals(self, split: Split) -> Sequence[Tensor]:
        """Each (channels, *size), values from 0 to 1."""
        raise NotImplementedError

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        signals = self.signals(split)
        return torch.stack(
            [cropped(signals[below(len(signals), generator)], self.true, generator) for _ in range(rows)]
        )


class ImageData(FieldData):
    """Random crops of images at all sizes that are large enough."""

    def __init__(self, size: int, factor: int) -> None:
        super().__init__(2, 3, size, factor)

    def files(self, split: Split) -> list[Path]:
        raise NotImplementedError

    def check(self) -> None:
        """Check headers only; damaged pixels are detected when an image is drawn."""
        side = self.true[0]
        for path in [path for split in SPLITS for path in self.files(split)]:
            _check_size(path, read_size(path), side)

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        files = self.files(split)
        return torch.stack([self._crop(generator, files, split) for _ in range(rows)])

    def _crop(self, generator: torch.Generator, files: list[Path], split: Split) -> Tensor:
        path = files[below(len(files), generator)]
        sizes = _sizes(path, path.stat().st_mtime_ns, self.true[0])
        crop = cropped(sizes[below(len(sizes), generator)], self.true, generator).float() / 255
        if split != "train":
            return crop
        turn = below(8, generator)
        crop = crop.flip(1) if turn & 1 else crop
        crop = crop.flip(2) if turn & 2 else crop
        crop = crop.transpose(1, 2) if turn & 4 else crop
        return crop[torch.randperm(3, generator=generator)]


def below(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator))


def cropped(signal: Tensor, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A random crop of (channels, *size)."""
    for axis, pixels in enumerate(size, 1):
        signal = signal.narrow(axis, below(signal.shape[axis] - pixels + 1, generator), pixels)
    return signal


def sixths(everything: Sequence[T], split: Split) -> list[T]:
    """Of every six, four for training, one for validation, one for test; of fewer, the last two are held out."""
    count = len(everything)
    validation = range(1, count, 6) if count >= 6 else [count - 2]
    test = range(2, count, 6) if count >= 6 else [count - 1]
    places = {"validation": validation, "test": test, "train": sorted({*range(count)} - {*validation, *test})}
    return [everything[place] for place in places[split]]


def _check_size(path: Path, size: tuple[int, ...], side: int) -> None:
    height, width = size
    if min(size) < side:
        raise UserError(
            f"data: expected images of {side}×{side} pixels or more (size × factor); {path.name} is {width}×{height}."
        )


@functools.lru_cache(maxsize=128)
def _sizes(path: Path, _changed: int, side: int) -> list[Tensor]:
    """An image and successively smaller versions of it, as bytes, while a crop fits."""
    image = read(path)
    _check_size(path, tuple(image.shape[1:]), side)
    most = min(1.0, max(LARGEST / max(image.shape[1:]), side / min(image.shape[1:])))
    image = resize(image[None], [max(side, int(count * most)) for count in image.shape[1:]], "area")[0]
    sizes, scale = [], 1.0
    while min(smaller := [int(count * scale) for count in image.shape[1:]]) >= side:
        sizes.append((resize(image[None], smaller, "area")[0] * 255).round().clamp(0, 255).to(torch.uint8))
        scale *= SHRINK
    return sizes
