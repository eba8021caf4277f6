"""Where and how to run. None of this is part of a run's identity."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from whence.config import Config
from whence.system import Device


class ExecutionOptions(Config):
    """For one run or for many."""

    GROUP: ClassVar[str] = "Execution"

    workers: int | None = Field(default=None, ge=1, le=1024, description="processes; none: one per core")
    # a resumed run keeps the number that it started with, because results depend on it in the last bits
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="CPU threads per process; none: the cores, shared out"
    )
    device: Device = Field(default="auto", description="auto takes a GPU if there is one")
    checkpoint_interval: float = Field(
        default=20.0, ge=0, le=1e9, description="seconds between checkpoints", json_schema_extra={"metavar": "SECONDS"}
    )
    retry_failed: bool = Field(default=False, description="run again what failed with a non-finite number")
