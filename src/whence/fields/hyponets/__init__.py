"""What turns position tokens and a coordinate into a value: one file each."""

from __future__ import annotations

from typing import Annotated

from whence.fields.hyponets.base import Hyponet
from whence.registry import Choice, Registry

HYPONETS: Registry[Hyponet] = Registry(__name__, Hyponet)
HyponetChoice = Annotated[Choice[Hyponet], HYPONETS]
