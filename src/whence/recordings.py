"""Data in files of a user: arrays of numbers, recordings, and the checksum that makes them part of a run's identity."""

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
"""Bytes: so many numbers of float64, and a header"""
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


def read_array(path: Path, field: str) -> np.ndarray:
    """The real numbers of a .npy file. Its header is compared with its size before they are read."""
    with open_input(path, field, LARGEST_FILE) as file:
        try:
            if npy.read_magic(file) != (1, 0):
                raise ValueError("it is not in version 1.0 of the format")
            shape, by_columns, dtype = npy.read_array_header_1_0(file)
            if dtype.kind not in "fiu":
                raise ValueError(f"it holds {dtype}. Allowed: numbers")
            count, size = math.prod(shape), os.fstat(file.fileno()).st_size - file.tell()
            if min(shape, default=0) < 0 or count * dtype.itemsize != size:
                raise ValueError(f"shape {shape} of {dtype} does not make {size} bytes")
            return np.fromfile(file, dtype, count).reshape(shape, order="F" if by_columns else "C")
        except Exception as error:  # the header is a literal of Python, and on broken ones numpy raises almost anything
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise UserError(f"{field}: {str(path)!r} cannot be read as an array ({reason}).") from None


def read_npy(path: Path, shapes: dict[int, str]) -> Tensor:
    """An array of finite numbers as float32. `shapes`: by how many axes it may have, what they are."""
    if path.suffix != ".npy" or not os.path.isfile(path):
        raise UserError(f"data: {str(path)!r} is not a file. Allowed: path=NAME.npy")
    values = read_array(path, "data")
    if values.ndim not in shapes or values.size > MOST_NUMBERS:
        raise UserError(
            f"data: {str(path)!r} holds {values.dtype} of shape {values.shape}. Allowed: numbers of shape "
            f"{' or '.join(shapes.values())}, up to {MOST_NUMBERS:,} of them."
        )
    ends = [float(values.min()), float(values.max())] if values.size else []  # also finds what is no number
    if not all(abs(end) <= LARGEST_VALUE for end in ends):
        raise UserError(
            f"data: {str(path)!r} holds values that are no numbers, or beyond {LARGEST_VALUE:g}. Allowed: finite ones."
        )
    return torch.from_numpy(np.array(values, dtype=np.float32, order="C"))


@runtime_checkable
class FileData(Protocol):
    """A variant with the options `path` and `checksum`."""

    def checksum_now(self) -> str: ...


def with_checksum(choice: Choice[T]) -> Choice[T]:
    """With the checksum of its files and one spelling of their path, where a variant has these options.

    A run over a user's files means the bytes that were there.
    """
    if choice.options().get("checksum") != "":
        return choice
    named = choice.model_copy(update={"path": os.path.normpath(choice.options()["path"] or "?")})
    data = named.build()
    assert isinstance(data, FileData)
    return named.model_copy(update={"checksum": data.checksum_now()})
