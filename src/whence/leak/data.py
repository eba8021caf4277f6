"""Recordings to mask and reconstruct. `DATA.choose("synthetic:position=0.5")`."""

from __future__ import annotations

import csv
import functools
import itertools
import math
import os.path
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.inputs import file_digest
from whence.random import derive
from whence.recordings import read_npy, read_ts
from whence.registry import Choice, Registry, Variant
from whence.system import packaged_file

Split = Literal["train", "validation", "test"]
Splits = dict[Split, list[Tensor]]


class RecordingData(Variant):
    """Recordings, split by whole recordings or by time, never by windows that overlap."""

    held_out_name: ClassVar[str] = "these held-out recordings"
    """Name of the held-out data that all seeds share; empty where every seed draws its own."""

    steps: int
    """Length of one example."""
    channels: int

    @property
    def drawn_steps(self) -> int:
        """Steps that are held in memory while an example is drawn."""
        return self.steps

    def recordings(self, split: Split) -> list[Tensor]:
        """Each (time, channels), at least `steps` long. Standardised per channel, by the training split alone."""
        raise NotImplementedError

    def draw(self, generator: torch.Generator, rows: int, split: Split, half: int | None = None) -> Tensor:
        """Examples from random offsets, (rows, steps, channels). `half`, 0 or 1: from that half of the recordings."""
        recordings = self.recordings(split)
        if half is not None and len(recordings) > 1:
            recordings = recordings[half::2]
        elif half is not None:
            middle = max(self.steps, len(recordings[0]) // 2)
            recordings = [recordings[0][-middle:] if half else recordings[0][:middle]]
        chosen = torch.randint(len(recordings), (rows,), generator=generator).tolist()
        offsets = torch.rand(rows, generator=generator).tolist()
        starts = [int(u * (len(recordings[i]) - self.steps + 1)) for i, u in zip(chosen, offsets, strict=True)]
        return torch.stack([recordings[i][s : s + self.steps] for i, s in zip(chosen, starts, strict=True)])


DATA: Registry[RecordingData] = Registry(__name__, RecordingData)
DataChoice = Annotated[Choice[RecordingData], DATA]


class SyntheticRecordings(RecordingData):
    """Smooth random content that differs between examples, plus a fixed template that depends on position only.

    `position` is the share of the variance that the template carries: an upper bound on what position can predict.
    """

    name = "synthetic"
    held_out_name = ""

    def __init__(
        self,
        *,
        position: Annotated[
            float, Field(ge=0, le=1, description="share of the variance that position determines; 0: none")
        ] = 0.0,
        smoothness: Annotated[
            float, Field(gt=0, le=1e6, description="correlation length of the content, in steps")
        ] = 6.0,
        steps: Annotated[int, Field(ge=2, le=1000, description="time steps per example")] = 64,
        channels: Annotated[int, Field(ge=1, le=100, description="channels per time step")] = 4,
        template: Annotated[int, Field(ge=0, le=2**31, description="random seed of the template")] = 0,
    ) -> None:
        self.position, self.smoothness, self.steps, self.channels = position, smoothness, steps, channels
        self.template = template

    @property
    def drawn_steps(self) -> int:
        return self.steps + 2 * self._reach

    @property
    def _reach(self) -> int:
        return math.ceil(4 * self.smoothness)

    def draw(self, generator: torch.Generator, rows: int, split: Split, half: int | None = None) -> Tensor:
        content = self._smooth(generator, rows)
        fixed = self._smooth(torch.Generator().manual_seed(derive(self.template, "template")), 1)
        fixed = (fixed - fixed.mean(1, keepdim=True)) / fixed.std(1, keepdim=True, correction=0)
        return math.sqrt(1 - self.position) * content + math.sqrt(self.position) * fixed

    def _smooth(self, generator: torch.Generator, rows: int) -> Tensor:
        """White noise convolved with a Gaussian kernel, of unit variance: a stationary Gaussian process."""
        reach = self._reach
        noise = torch.randn(rows, self.channels, self.steps + 2 * reach, generator=generator)
        bell = torch.exp(-((torch.arange(-reach, reach + 1) / self.smoothness) ** 2))
        bell = (bell / bell.norm()).view(1, 1, -1)
        return torch.conv1d(noise.flatten(0, 1)[:, None], bell).view(rows, self.channels, -1).transpose(1, 2)


class BasicMotions(RecordingData):
    """Smart-watch recordings of four motions: 80 recordings of 100 steps, 3 axes of acceleration and 3 of rotation.

    The published split: 40 recordings for training, of which every fifth is for validation, and 40 for testing.
    """

    channels = 6

    def __init__(
        self, *, steps: Annotated[int, Field(ge=2, le=100, description="time steps per example")] = 80
    ) -> None:
        self.steps = steps

    def recordings(self, split: Split) -> list[Tensor]:
        training, test = (_of_aeon(f"BasicMotions/BasicMotions_{part}.ts", self.name) for part in ("TRAIN", "TEST"))
        return _read_motions(training, test)[split]


@functools.cache
def _read_motions(training: Path, test: Path) -> Splits:
    known, held_out = ([recording.T.contiguous() for recording in read_ts(path)] for path in (training, test))
    train = [recording for i, recording in enumerate(known) if i % 5]
    return _standardised({"train": train, "validation": known[::5], "test": held_out})


class Daphnet(RecordingData):
    """Accelerometers on the ankle, leg and trunk of one person walking: 7,040 steps at 64 Hz, 9 channels."""

    channels = 9

    def __init__(
        self, *, steps: Annotated[int, Field(ge=2, le=1000, description="time steps per example")] = 64
    ) -> None:
        self.steps = steps

    def recordings(self, split: Split) -> list[Tensor]:
        return _read_walk(_of_aeon("Daphnet_S06R02E0/S06R02E0.csv", self.name), self.steps)[split]


@functools.cache
def _read_walk(path: Path, steps: int) -> Splits:
    with path.open(newline="") as file:
        rows = [[float(value) for value in row[1:10]] for row in list(csv.reader(file))[1:]]
    return _standardised(_cut_in_time(torch.tensor(rows), steps))


class RecordingFile(RecordingData):
    """A .npy file: one recording (time, channels), or several (recordings, time, channels)."""

    name = "file"

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="path of the .npy file")] = "",
        steps: Annotated[int, Field(ge=2, le=2**20, description="time steps per example")] = 64,
        checksum: Annotated[str, Field(description="checksum of the file; filled in automatically")] = "",
    ) -> None:
        self.steps, self.path = steps, path
        self.channels = self.recordings("train")[0].shape[1]
        if checksum not in ("", self.checksum_now()):
            raise UserError(
                f"data: expected {path!r} with checksum {checksum}, got {self.checksum_now()}: the file has changed. "
                "Restore it, or start a new comparison on it."
            )

    def checksum_now(self) -> str:
        return file_digest(self.path, "data")[:16]

    def recordings(self, split: Split) -> list[Tensor]:
        path = Path(self.path)
        return _read_file(path, path.stat().st_mtime_ns if os.path.isfile(path) else 0, self.steps)[split]


@functools.lru_cache(maxsize=4)
def _read_file(path: Path, _changed: int, steps: int) -> Splits:
    recordings = read_npy(path, {2: "(time, channels)", 3: "(recordings, time, channels)"})
    if recordings.ndim == 2:
        return _standardised(_cut_in_time(recordings, steps))
    if len(recordings) < 6 or recordings.shape[1] < steps:
        raise UserError(
            f"data: expected 6 or more recordings of {steps} or more steps, got {len(recordings)} of "
            f"{recordings.shape[1]}. Pass more data, or shorter examples with NAME.npy:steps=N."
        )
    split: list[Split] = ["train", "train", "train", "train", "validation", "test"]
    return _standardised({name: [r for i, r in enumerate(recordings) if split[i % 6] == name] for name in split})


def _of_aeon(name: str, data: str) -> Path:
    """A file of the aeon package, which is installed for its data only."""
    return packaged_file("aeon", f"aeon/datasets/data/{name}", field="data", what=data)


def _standardised(splits: Splits) -> Splits:
    """Every channel with mean 0 and variance 1 over the training split."""
    training = torch.cat(splits["train"])
    if not training.shape[1]:
        raise UserError("data: expected one or more channels, got none. Check the shape of the file.")
    mean, deviation = training.mean(0), training.std(0)
    if (deviation == 0).any():
        which = ", ".join(str(i) for i in (deviation == 0).nonzero().flatten().tolist())
        raise UserError(
            f"data: expected channels that vary, got a constant channel {which} in the training split. Remove it from "
            "the data."
        )
    return {name: [(recording - mean) / deviation for recording in parts] for name, parts in splits.items()}


def _cut_in_time(series: Tensor, steps: int) -> Splits:
    """One long recording: the first 70 % for training, then 15 % each for validation and testing."""
    ends = [0, int(0.7 * len(series)), int(0.85 * len(series)), len(series)]
    parts = [series[a:b] for a, b in itertools.pairwise(ends)]
    if min(map(len, parts)) < steps:
        raise UserError(
            f"data: expected {steps} or more steps in each of the training, validation and test parts, got "
            f"{min(map(len, parts))} in the smallest of {len(series)} in all. Shorten the examples with "
            "NAME.npy:steps=N, or pass a longer recording."
        )
    return {"train": [parts[0]], "validation": [parts[1]], "test": [parts[2]]}
