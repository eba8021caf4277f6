"""What turns position tokens and a coordinate into a value: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.fields.hyponets.base import Hyponet
from whence.registry import Choice, Registry

HYPONETS: Registry[Hyponet] = Registry(__name__, Hyponet)

if TYPE_CHECKING:
    HyponetChoice = Choice


def __getattr__(name: str) -> Any:
    if name == "HyponetChoice":
        return HYPONETS.union()
    raise AttributeError(f"whence.fields.hyponets has no {name!r}")
