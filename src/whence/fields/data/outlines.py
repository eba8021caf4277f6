"""Outlines of leaves that come with aeon: the first dimension."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.fields.data.base import Crops, Split
from whence.recordings import read_ts
from whence.system import packaged_file


class Outlines(Crops):
    """442 outlines of leaves, 427 pixels each: the published 200 to train on (of which every fifth to choose by), and
    242 to report."""

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=8, le=256, description="pixels of the input")] = 64,
        factor: Annotated[int, Field(ge=1, le=8, description="how much finer the true signal is")] = 4,
    ) -> None:
        if size * factor > 427:
            raise UserError(f"data: size × factor is {size * factor}. Allowed: up to 427, as outlines have.")
        super().__init__(1, 1, size, factor)

    def signals(self, split: Split) -> Sequence[Tensor]:
        files = [
            packaged_file("aeon", f"aeon/datasets/data/OSULeaf/OSULeaf_{part}.ts", field="data", what="outlines")
            for part in ("TRAIN", "TEST")
        ]
        return _read(*files)[split]


@functools.cache
def _read(training: Path, test: Path) -> dict[Split, list[Tensor]]:
    """Standardised one by one as published, so that five deviations either way hold all of them."""
    known, rest = ([(one / 10 + 0.5).clamp(0, 1) for one in read_ts(path)] for path in (training, test))
    return {"train": [one for i, one in enumerate(known) if i % 5], "validation": known[::5], "test": rest}
