"""Handwritten digits that come with scikit-learn."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from whence.fields.data.base import FieldData, Split, sixths
from whence.system import packaged_file


class Digits(FieldData):
    """1,797 grey digits of 8×8 pixels: four of six to train on, one to choose designs by, one to report."""

    axes, channels = 2, 1

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=4, le=8, multiple_of=4, description="pixels per side of the input: 4 or 8")] = 8,
    ) -> None:
        self.inputs, self.true = (size, size), (8, 8)

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        digits = _digits(
            packaged_file("scikit-learn", "sklearn/datasets/data/digits.csv.gz", field="data", what="digits")
        )
        places = torch.tensor(sixths(range(len(digits)), split))
        return digits[places[torch.randint(len(places), (rows,), generator=generator)]]


@functools.cache
def _digits(path: Path) -> Tensor:
    """(digits, 1, 8, 8) from 0 to 1."""
    with gzip.open(path) as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return torch.from_numpy(table[:, :64] / 16).view(-1, 1, 8, 8)
