"""Data in files of a user: arrays of numbers, recordings, and the checksum that makes them part of a run's identity."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from whence.errors import UserError
from whence.registry import Choice, T

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
        raise UserError(f"data: {str(path)!r} is not a file. Allowed: path=NAME.npy")
    try:
        values = np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"data: {str(path)!r} cannot be read as an array ({error}).") from None
    if values.ndim not in shapes or values.dtype.kind not in "fiu" or 4 * values.size > LARGEST:
        raise UserError(
            f"data: {str(path)!r} holds {values.dtype} of shape {values.shape}. Allowed: numbers of shape "
            f"{' or '.join(shapes.values())}, up to {LARGEST // 4:,} of them."
        )
    ends = [float(values.min()), float(values.max())] if values.size else []  # also finds what is no number
    if not all(abs(end) <= LARGEST_VALUE for end in ends):
        raise UserError(
            f"data: {str(path)!r} holds values that are no numbers, or beyond {LARGEST_VALUE:g}. Allowed: finite ones."
        )
    return torch.from_numpy(np.array(values, dtype=np.float32))


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
