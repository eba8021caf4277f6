"""A user's own numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.fields.data.base import SPLITS, Crops, Split, sixths
from whence.recordings import read_npy
from whence.store.files import file_digest

KINDS = {1: "length", 2: "height, width", 3: "depth, height, width"}


class Arrays(Crops):
    """A .npy file of signals (signals, length …).

    Of every six signals, four to train on, one to choose designs by, one to report. Channel by channel, what the
    training signals span becomes .05 to .95; what lies beyond 0 and 1 after that is clipped.
    """

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="the .npy file")] = "",
        axes: Annotated[int, Field(ge=1, le=3, description="of one signal: 1 series, 2 images, 3 volumes")] = 1,
        channels: Annotated[
            int, Field(ge=0, le=64, description="numbers per pixel, on the file's last axis; 0: it has no such axis")
        ] = 0,
        size: Annotated[int, Field(ge=4, le=4096, description="pixels per axis of the input")] = 32,
        factor: Annotated[int, Field(ge=1, le=8, description="how much finer the true signal is")] = 4,
        checksum: Annotated[str, Field(description="of its bytes; filled in: a changed file is other data")] = "",
    ) -> None:
        super().__init__(axes, channels or 1, size, factor)
        self.path, self.checksum, self.last = Path(path), checksum, channels

    def checksum_now(self) -> str:
        self.signals("train")  # refuses what is no such file
        return _digest(self.path, self.path.stat().st_mtime_ns)

    def signals(self, split: Split) -> Sequence[Tensor]:
        changed = self.path.stat().st_mtime_ns if self.path.is_file() else 0
        signals = _read(self.path, changed, self.axes, self.last)
        size = signals["train"][0].shape[1:]
        if min(size) < self.true[0]:
            raise UserError(
                f"data: signals of {'×'.join(map(str, size))} pixels. Allowed: {self.true[0]} per axis or more "
                "(size × factor)."
            )
        if self.checksum and self.checksum != _digest(self.path, changed):
            raise UserError(f"data: {str(self.path)!r} has changed since this was requested. Allowed: the same file.")
        return signals[split]


@functools.lru_cache(maxsize=4)
def _digest(path: Path, _changed: int) -> str:
    return file_digest(path)[:16]


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int, axes: int, channels: int) -> dict[Split, list[Tensor]]:
    """Each (channels, *size)"""
    shape = f"(signals, {KINDS[axes]}{', channels' if channels else ''})"
    values = read_npy(path, {axes + 1 + bool(channels): shape})
    if channels and values.shape[-1] != channels:
        raise UserError(
            f"data: the last axis of {str(path)!r} has {values.shape[-1]} numbers. Allowed: channels={channels}."
        )
    if len(values) < 3 or not values.numel():
        raise UserError(f"data: {str(path)!r} holds {len(values)} signals. Allowed: 3 or more.")
    values = values.movedim(-1, 1) if channels else values[:, None]
    splits: dict[Split, list[Tensor]] = {split: sixths(values.unbind(), split) for split in SPLITS}
    ends = torch.stack([torch.stack(one.flatten(1).aminmax(dim=1)) for one in splits["train"]])
    low, high = (end.view(-1, *[1] * axes) for end in (ends[:, 0].amin(0), ends[:, 1].amax(0)))
    if (low == high).any():
        raise UserError(f"data: a channel of {str(path)!r} never changes. Allowed: values that vary.")
    return {
        split: [(0.05 + 0.9 * (one - low) / (high - low)).clamp(0, 1) for one in signals]
        for split, signals in splits.items()
    }
