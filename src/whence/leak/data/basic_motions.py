"""A watch on a wrist."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.leak.data.base import PackagedRecordings, Split, standardised
from whence.recordings import read_ts


class BasicMotions(PackagedRecordings):
    """Smart-watch recordings of four motions: 80 of 100 steps, 3 axes of acceleration and 3 of rotation.

    The published split: 40 to train on (of which every fifth to choose by), 40 to report on.
    """

    channels = 6

    def __init__(self, *, steps: Annotated[int, Field(ge=2, le=100, description="steps per example")] = 80) -> None:
        self.steps = steps

    def recordings(self, split: Split) -> list[Tensor]:
        folder = "aeon/datasets/data/BasicMotions/BasicMotions"
        return _read(self.file(f"{folder}_TRAIN.ts"), self.file(f"{folder}_TEST.ts"))[split]


@functools.cache
def _read(training: Path, test: Path) -> dict[Split, list[Tensor]]:
    known = _recordings(training)
    return standardised(
        {
            "train": [recording for i, recording in enumerate(known) if i % 5],
            "validation": known[::5],
            "test": _recordings(test),
        }
    )


def _recordings(path: Path) -> list[Tensor]:
    return [recording.T.contiguous() for recording in read_ts(path)]
