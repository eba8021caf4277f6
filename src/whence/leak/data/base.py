"""What data are: recordings of several channels, cut into windows that become tokens."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from whence.errors import UserError
from whence.registry import Variant
from whence.system import packaged_file

Split = Literal["train", "validation", "test"]


class RecordingData(Variant):
    """Recordings, split by whole recordings or by time, never by windows that overlap."""

    held_out_name: ClassVar[str] = "these held-out recordings"
    """Held-out data that all seeds share; empty where every seed draws its own."""

    steps: int
    """Length of one example."""
    channels: int

    def recordings(self, split: Split) -> list[Tensor]:
        """Each (time, channels), at least `steps` long. Standardised per channel, by the training split alone."""
        raise NotImplementedError

    def draw(self, generator: torch.Generator, rows: int, split: Split, half: int | None = None) -> Tensor:
        """Examples that begin anywhere: (rows, steps, channels). `half`, 0 or 1: from half of the recordings only."""
        recordings = self.recordings(split)
        if half is not None:
            recordings = recordings[half::2] if len(recordings) > 1 else self._halves(recordings[0])[half : half + 1]
        chosen = torch.randint(len(recordings), (rows,), generator=generator).tolist()
        luck = torch.rand(rows, generator=generator).tolist()
        starts = [int(u * (len(recordings[i]) - self.steps + 1)) for i, u in zip(chosen, luck, strict=True)]
        return torch.stack([recordings[i][s : s + self.steps] for i, s in zip(chosen, starts, strict=True)])

    def _halves(self, recording: Tensor) -> list[Tensor]:
        middle = max(self.steps, len(recording) // 2)
        return [recording[:middle], recording[-middle:]]


class PackagedRecordings(RecordingData):
    """Data inside a package that is installed for its files alone."""

    package: ClassVar[str] = "aeon"

    def file(self, name: str) -> Path:
        return packaged_file(self.package, name, field="data", what=self.name)


def standardised(splits: dict[Split, list[Tensor]]) -> dict[Split, list[Tensor]]:
    """Every channel with mean 0 and variance 1 over the training split."""
    training = torch.cat(splits["train"])
    if not training.shape[1]:
        raise UserError("data: there are no channels. Allowed: one or more.")
    mean, deviation = training.mean(0), training.std(0)
    if not all(torch.isfinite(recording).all() for parts in splits.values() for recording in parts):
        raise UserError("data: there are values that are not numbers. Allowed: finite values.")
    if (deviation == 0).any():
        which = ", ".join(str(i) for i in (deviation == 0).nonzero().flatten().tolist())
        raise UserError(
            f"data: channel {which} never changes: there is nothing to predict. Allowed: channels that vary."
        )
    return {name: [(recording - mean) / deviation for recording in parts] for name, parts in splits.items()}


def cut_in_time(series: Tensor, steps: int) -> dict[Split, list[Tensor]]:
    """One long recording: the first 70 % to train on, then 15 % each to choose by and to report on."""
    ends = [0, int(0.7 * len(series)), int(0.85 * len(series)), len(series)]
    parts = [series[a:b] for a, b in itertools.pairwise(ends)]
    if min(map(len, parts)) < steps:
        raise UserError(
            f"data: {len(series)} steps leave {min(map(len, parts))} in the smallest of three parts. "
            f"Allowed: examples of at most so many steps (now {steps}: NAME.npy:steps=…), or a longer recording."
        )
    return {"train": [parts[0]], "validation": [parts[1]], "test": [parts[2]]}
