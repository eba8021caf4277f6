"""A user's own numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.fields.data.base import Crops, Split, sixths
from whence.recordings import read_npy
from whence.runs.files import file_digest

KINDS = {1: "points", 2: "height, width", 3: "depth, height, width"}


class Arrays(Crops):
    """A .npy file of signals (signals, points …), their least value as 0 and their largest as 1.

    Of every six signals, four to train on, one to choose designs by, one to report.
    """

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="the .npy file")] = "",
        axes: Annotated[int, Field(ge=1, le=3, description="of one signal: 1 series, 2 pictures, 3 volumes")] = 1,
        channels: Annotated[
            int, Field(ge=0, le=64, description="numbers per point, on the file's last axis; 0: it has no such axis")
        ] = 0,
        size: Annotated[int, Field(ge=4, le=4096, description="points per axis of what the model is shown")] = 32,
        factor: Annotated[int, Field(ge=1, le=8, description="how much finer the true signal is")] = 4,
        checksum: Annotated[str, Field(description="of its bytes; filled in: a changed file is other data")] = "",
    ) -> None:
        super().__init__(axes, channels or 1, size, factor)
        self.path, self.checksum, self.last = Path(path), checksum, channels

    def checksum_now(self) -> str:
        self.signals("train")  # refuses what is no such file
        return file_digest(self.path)[:16]

    def signals(self, split: Split) -> Sequence[Tensor]:
        changed = self.path.stat().st_mtime_ns if self.path.is_file() else 0
        signals = _read(self.path, changed, self.axes, self.last)
        if len(signals) < 3 or min(signals.shape[2:]) < self.true[0]:
            raise UserError(
                f"data: {len(signals)} signals of {'×'.join(map(str, signals.shape[2:]))} points. Allowed: 3 or more, "
                f"of {self.true[0]} points per axis or more (size × factor).",
                field="data",
            )
        if self.checksum and self.checksum != _digest(self.path, changed):
            raise UserError(
                f"data: {str(self.path)!r} has changed since this was asked for. Allowed: the same file.", field="data"
            )
        return sixths(signals.unbind(), split)


@functools.lru_cache(maxsize=4)
def _digest(path: Path, _changed: int) -> str:
    return file_digest(path)[:16]


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int, axes: int, channels: int) -> Tensor:
    """(signals, channels, *points)"""
    shape = f"(signals, {KINDS[axes]}{', channels' if channels else ''})"
    values = read_npy(path, {axes + 1 + bool(channels): shape})
    if channels and values.shape[-1] != channels:
        raise UserError(
            f"data: the last axis of {str(path)!r} has {values.shape[-1]} numbers. Allowed: channels={channels}.",
            field="data",
        )
    values = values.movedim(-1, 1) if channels else values[:, None]
    if not values.numel() or values.min() == values.max():
        raise UserError(f"data: all values of {str(path)!r} are equal. Allowed: values that vary.", field="data")
    return (values - values.min()) / (values.max() - values.min())
