"""Signals to learn fields of: one file each. `DATA.choose("photos")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.fields.data.base import Data
from whence.registry import Choice, Registry

DATA: Registry[Data] = Registry(__name__, Data)

if TYPE_CHECKING:
    DataChoice = Choice


def __getattr__(name: str) -> Any:
    if name == "DataChoice":
        return DATA.union()
    raise AttributeError(f"whence.fields.data has no {name!r}")
