"""Signals to learn fields of: one file each. `DATA.choose("photos")`."""

from __future__ import annotations

from typing import Annotated

from whence.fields.data.base import Data
from whence.registry import Choice, Registry

DATA: Registry[Data] = Registry(__name__, Data)
DataChoice = Annotated[Choice[Data], DATA]
