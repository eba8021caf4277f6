"""Handwritten digits that come with scikit-learn."""

from __future__ import annotations

import functools
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

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=4, le=8, multiple_of=4, description="pixels per side of the input: 4 or 8")] = 8,
    ) -> None:
        super().__init__(2, 1, size, 8 // size)

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        file = packaged_file("scikit-learn", "sklearn/datasets/data/digits.csv.gz", field="data", what="digits")
        digits = sixths(_digits(file), split)
        return torch.stack([digits[place] for place in torch.randint(len(digits), (rows,), generator=generator)])


@functools.cache
def _digits(path: Path) -> tuple[Tensor, ...]:
    """Each (1, 8, 8) from 0 to 1."""
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)  # unpacks it, too
    return torch.from_numpy(table[:, :64] / 16).view(-1, 1, 8, 8).unbind()
