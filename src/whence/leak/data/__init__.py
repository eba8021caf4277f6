"""Signals to hide and to predict: one file each. `DATA.choose("planted:position=0.5")`."""

from __future__ import annotations

from typing import Annotated

from whence.leak.data.base import Data
from whence.registry import Choice, Registry

DATA: Registry[Data] = Registry(__name__, Data)
DataChoice = Annotated[Choice[Data], DATA]
