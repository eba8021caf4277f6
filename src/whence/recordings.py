"""Data in files of the user: arrays, recordings, and the checksum that is part of a run's identity."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from whence.errors import UserError
from whence.inputs import open_input
from whence.registry import Choice, T

MOST_NUMBERS = 2**27
LARGEST_FILE = 8 * MOST_NUMBERS + 2**16
"""Bytes of as many numbers in float64, and a header"""
LARGEST_VALUE = 1e18
"""Squares of values must be finite in float32"""


def read_ts(path: Path) -> list[Tensor]:
    """Recordings (channels, steps), one per line: colons separate channels, commas steps; the label is last."""
    lines = path.read_text().partition("@data\n")[2].splitlines()
    return [
        torch.tensor([[float(value) for value in channel.split(",")] for channel in line.split(":")[:-1]])
        for line in lines
        if line
    ]


def read_array(path: Path, field: str) -> np.ndarray:
    """The real numbers of a .npy file. The header is checked against the size of the file before they are read."""
    with open_input(path, field, LARGEST_FILE) as file:
        try:
            if npy.read_magic(file) != (1, 0):
                raise ValueError("expected version 1.0 of the format")
            shape, by_columns, dtype = npy.read_array_header_1_0(file)
            if dtype.kind not in "fiu":
                raise ValueError(f"expected numbers, got {dtype}")
            count, size = math.prod(shape), os.fstat(file.fileno()).st_size - file.tell()
            if min(shape, default=0) < 0 or count * dtype.itemsize != size:
                raise ValueError(f"expected {count * dtype.itemsize} bytes of {dtype} for shape {shape}, got {size}")
            return np.fromfile(file, dtype, count).reshape(shape, order="F" if by_columns else "C")
        except Exception as error:  # numpy raises many kinds of errors for a damaged header
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise UserError(f"{field}: {str(path)!r} cannot be read as an array ({reason}).") from None


def read_npy(path: Path, shapes: dict[int, str]) -> Tensor:
    """An array of finite numbers as float32. `shapes`: descriptions of the allowed shapes, by number of axes."""
    if path.suffix != ".npy" or not os.path.isfile(path):
        raise UserError(f"data: {str(path)!r} is not an existing .npy file. Pass path=FILE.npy.")
    values = read_array(path, "data")
    if values.ndim not in shapes or values.size > MOST_NUMBERS:
        raise UserError(
            f"data: expected up to {MOST_NUMBERS:,} numbers of shape {' or '.join(shapes.values())}, got "
            f"{values.dtype} of shape {values.shape} in {str(path)!r}."
        )
    ends = [float(values.min()), float(values.max())] if values.size else []  # NaN if any value is
    if not all(abs(end) <= LARGEST_VALUE for end in ends):
        raise UserError(
            f"data: expected finite values up to {LARGEST_VALUE:g} in size; {str(path)!r} has NaN or larger ones."
        )
    return torch.from_numpy(np.array(values, dtype=np.float32, order="C"))


@runtime_checkable
class FileData(Protocol):
    """A variant with options `path` and `checksum`."""

    def checksum_now(self) -> str: ...


def with_checksum(choice: Choice[T]) -> Choice[T]:
    """The choice with the checksum of its files and their normalized path, for variants with these options.

    The checksum makes the content of a user's files part of a run's identity.
    """
    if choice.options().get("checksum") != "":
        return choice
    named = choice.model_copy(update={"path": os.path.normpath(choice.options()["path"] or "?")})
    data = named.build()
    assert isinstance(data, FileData)
    return named.model_copy(update={"checksum": data.checksum_now()})
