"""A user's own recordings."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.leak.data.base import Data, Split, cut_in_time, standardised
from whence.runs.files import file_digest

LARGEST = 2**31
LARGEST_VALUE = 1e18
"""Squares of values must fit into float32."""


class File(Data):
    """A .npy file: one recording (time, channels), or several (recordings, time, channels)."""

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="the .npy file")] = "",
        steps: Annotated[int, Field(ge=2, description="steps per example")] = 64,
        checksum: Annotated[str, Field(description="of its bytes; filled in: a changed file is other data")] = "",
    ) -> None:
        self.steps, self.path = steps, path
        self.channels = self.recordings("train")[0].shape[1]
        self.checksum = file_digest(Path(path))[:16]
        if checksum not in ("", self.checksum):
            raise UserError(
                f"data: {path!r} has changed since this was asked for. Allowed: the same file.", field="data"
            )

    def recordings(self, split: Split) -> list[Tensor]:
        path = Path(self.path)
        if path.suffix != ".npy" or not path.is_file():
            raise UserError(f"data: {self.path!r} is not a file. Allowed: file:path=NAME.npy", field="data")
        return _read(path, path.stat().st_mtime_ns, self.steps)[split]


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int, steps: int) -> dict[Split, list[Tensor]]:
    try:
        values = np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"data: {str(path)!r} cannot be read as an array ({error}).", field="data") from None
    if values.ndim not in (2, 3) or values.dtype.kind not in "fiu" or values.nbytes > LARGEST:
        raise UserError(
            f"data: {str(path)!r} holds {values.dtype} of shape {values.shape}. Allowed: numbers of shape "
            "(time, channels) or (recordings, time, channels), up to 2 GiB.",
            field="data",
        )
    if not np.isfinite(values).all() or np.abs(values, dtype=np.float64).max(initial=0) > LARGEST_VALUE:
        raise UserError(
            f"data: {str(path)!r} holds values that are no numbers, or beyond {LARGEST_VALUE:g}. Allowed: finite ones.",
            field="data",
        )
    found = torch.from_numpy(np.array(values, dtype=np.float32))
    if found.ndim == 2:
        return standardised(cut_in_time(found, steps))
    if len(found) < 6 or found.shape[1] < steps:
        raise UserError(
            f"data: {len(found)} recordings of {found.shape[1]} steps. Allowed: 6 or more, of {steps} steps or more.",
            field="data",
        )
    split: list[Split] = ["train", "train", "train", "train", "validation", "test"]
    return standardised({name: [r for i, r in enumerate(found) if split[i % 6] == name] for name in split})
