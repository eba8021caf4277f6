"""Signals to learn fields of: one file each. `DATA.choose("photos")`."""

from __future__ import annotations

from typing import Annotated

from whence.fields.data.base import FieldData
from whence.registry import Choice, Registry

DATA: Registry[FieldData] = Registry(__name__, FieldData)
DataChoice = Annotated[Choice[FieldData], DATA]
