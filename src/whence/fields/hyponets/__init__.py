"""What turns position tokens and a coordinate into a value: one file for each way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.fields.hyponets.base import Hyponet
from whence.registry import Registry

HYPONETS: Registry[Hyponet] = Registry(__name__, Hyponet)
HyponetChoice = Any if TYPE_CHECKING else HYPONETS.union()
