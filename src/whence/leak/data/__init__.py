"""Signals to hide and to predict: one file each. `DATA.choose("planted:position=0.5")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.leak.data.base import Data
from whence.registry import Choice, Registry

DATA: Registry[Data] = Registry(__name__, Data)

if TYPE_CHECKING:
    DataChoice = Choice


def __getattr__(name: str) -> Any:
    if name == "DataChoice":
        return DATA.union()
    raise AttributeError(f"whence.leak.data has no {name!r}")
