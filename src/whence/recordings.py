"""Files of numbers that hold recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from whence.errors import UserError

LARGEST = 2**31
LARGEST_VALUE = 1e18
"""Squares of values must fit into float32."""


def read_ts(path: Path) -> list[Tensor]:
    """Recordings (channels, steps), one per line: channels separated by colons, steps by commas, the label last."""
    lines = path.read_text().partition("@data\n")[2].splitlines()
    return [
        torch.tensor([[float(value) for value in channel.split(",")] for channel in line.split(":")[:-1]])
        for line in lines
        if line
    ]


def read_npy(path: Path, shapes: dict[int, str]) -> Tensor:
    """An array of finite numbers as float32. `shapes`: by how many axes it may have, what they are."""
    if path.suffix != ".npy" or not path.is_file():
        raise UserError(f"data: {str(path)!r} is not a file. Allowed: path=NAME.npy", field="data")
    try:
        values = np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"data: {str(path)!r} cannot be read as an array ({error}).", field="data") from None
    if values.ndim not in shapes or values.dtype.kind not in "fiu" or 4 * values.size > LARGEST:
        raise UserError(
            f"data: {str(path)!r} holds {values.dtype} of shape {values.shape}. Allowed: numbers of shape "
            f"{' or '.join(shapes.values())}, up to {LARGEST // 4:,} of them.",
            field="data",
        )
    ends = [float(values.min()), float(values.max())] if values.size else []  # also finds what is no number
    if not all(abs(end) <= LARGEST_VALUE for end in ends):
        raise UserError(
            f"data: {str(path)!r} holds values that are no numbers, or beyond {LARGEST_VALUE:g}. Allowed: finite ones.",
            field="data",
        )
    return torch.from_numpy(np.array(values, dtype=np.float32))
