"""Signals to hide and to predict: one file each. `DATA.choose("synthetic:position=0.5")`."""

from __future__ import annotations

from typing import Annotated

from whence.leak.data.base import RecordingData
from whence.registry import Choice, Registry

DATA: Registry[RecordingData] = Registry(__name__, RecordingData)
DataChoice = Annotated[Choice[RecordingData], DATA]
