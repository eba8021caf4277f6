"""Files of tensors that name their owner. Reading one never executes code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import safetensors
import safetensors.torch
from torch import Tensor

from whence.parsing import parse_json
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import FORMAT, FormatError, canonical, check_nesting


class TensorFile(Protocol):
    """`safetensors.safe_open`, whose stubs have no types."""

    def keys(self) -> list[str]: ...
    def get_tensor(self, name: str) -> Tensor: ...
    def metadata(self) -> dict[str, str] | None: ...


def tensor_bytes(tensors: Mapping[str, Tensor], of: str, facts: Mapping[str, Any] = {}) -> bytes:
    """The bytes of a file of tensors. of: its owner. facts: other content, as JSON."""
    # one entry: safetensors writes several in any order, and the same state must give the same bytes
    metadata = {"facts": canonical({"format": FORMAT, "of": of, **facts})}
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata)


def open_tensors(path: Path, of: str) -> tuple[TensorFile, dict[str, Any]]:
    """The memory-mapped file and its facts. `CorruptFileError` if it belongs to another owner.

    The caller checks the checksum.
    """
    disk.open_file(path).close()
    try:
        file = _open(path)
        raw = (file.metadata() or {}).get("facts", "{}").encode()
        check_nesting(raw, path)
        facts: dict[str, Any] = parse_json(raw)
        format, owner = facts.pop("format", "none"), facts.pop("of", None)
    except (safetensors.SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise CorruptFileError(path, f"not a file of tensors ({error})") from None
    if format != FORMAT:
        raise FormatError(path, format)
    if owner != of:
        raise CorruptFileError(path, f"belongs to {str(owner)[:80]!r}")
    return file, facts


def _open(path: Path) -> TensorFile:
    return safetensors.safe_open(path, "pt")


def all_tensors(file: TensorFile) -> dict[str, Tensor]:
    return {name: file.get_tensor(name) for name in list(file.keys())}
