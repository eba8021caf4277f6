"""Walking with Parkinson's disease."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from whence.leak.data.base import PackagedRecordings, Split, cut_in_time, standardised


class Daphnet(PackagedRecordings):
    """Accelerometers on ankle, leg and trunk of one walker: 7,040 steps, 9 channels, 64 per second."""

    channels = 9

    def __init__(self, *, steps: Annotated[int, Field(ge=2, le=1000, description="steps per example")] = 64) -> None:
        self.steps = steps

    def recordings(self, split: Split) -> list[Tensor]:
        return _read(self.file("aeon/datasets/data/Daphnet_S06R02E0/S06R02E0.csv"), self.steps)[split]


@functools.cache
def _read(path: Path, steps: int) -> dict[Split, list[Tensor]]:
    with path.open(newline="") as file:
        rows = [[float(value) for value in row[1:10]] for row in list(csv.reader(file))[1:]]
    return standardised(cut_in_time(torch.tensor(rows), steps))
