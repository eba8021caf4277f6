"""Safetensors files that a user hands in: what they hold is compared with what is wanted before any of it is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from whence.errors import UserError
from whence.inputs import LARGEST_FILE, open_input
from whence.system import memory_bytes

LARGEST_HEADER = 2**24
"""Bytes"""
FLOATS = ("F16", "BF16", "F32", "F64")


class StoredTensor(NamedTuple):
    """As the header of a file describes it."""

    path: Path
    shape: tuple[int, ...]
    dtype: str


def stored_tensors(path: Path, field: str) -> dict[str, StoredTensor]:
    """By name. The header agrees with the size of the file."""
    with open_input(path, field, LARGEST_FILE) as file:
        if int.from_bytes(file.read(8), "little") > LARGEST_HEADER:
            raise UserError(f"{field}: {str(path)!r} cannot be read: its header is larger than {LARGEST_HEADER} bytes.")
    with _opened(path, field) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {name: StoredTensor(path, tuple(one.get_shape()), one.get_dtype()) for name, one in slices.items()}


def read_floats(
    stored: Mapping[str, StoredTensor], wanted: Mapping[str, tuple[int, ...]], field: str
) -> dict[str, Tensor]:
    """The wanted tensors, in single precision. `UserError` where a shape or type differs, or a number is not finite."""
    if missing := sorted(wanted.keys() - stored.keys()):
        raise UserError(f"{field}: {len(missing)} weights are missing, the first is {missing[0]!r}.")
    for name, shape in wanted.items():
        path, found, dtype = stored[name]
        if found != shape:
            raise UserError(f"{field}: {name} in {path.name} has shape {found}, not {shape}.")
        if dtype not in FLOATS:
            raise UserError(f"{field}: {name} in {path.name} is of type {dtype}. Allowed: {', '.join(FLOATS)}.")
    check_memory(wanted.values(), field)
    tensors: dict[str, Tensor] = {}
    for path in sorted({stored[name].path for name in wanted}):
        with _opened(path, field) as file:
            tensors |= {name: file.get_tensor(name).float() for name in wanted if stored[name].path == path}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UserError(f"{field}: {name} in {stored[name].path.name} contains values that are not finite.")
    return tensors


def check_memory(shapes: Iterable[tuple[int, ...]], field: str) -> None:
    """Of tensors in single precision."""
    needed, there = 4 * sum(map(math.prod, shapes)), memory_bytes()
    if needed > there:
        raise UserError(
            f"{field}: the weights need {needed / 2**30:.1f} GiB in single precision, and this machine has "
            f"{there / 2**30:.1f} GiB. Allowed: a smaller model."
        )


@contextmanager
def _opened(path: Path, field: str) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{field}: {str(path)!r} cannot be read: {reason[:300]}.") from None
