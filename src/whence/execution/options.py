"""Options of execution, which are no part of a run's identity."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from whence.config import Config
from whence.system import Device


class ExecutionOptions(Config):
    """Processes, threads, device and checkpoints, for one run or for many."""

    GROUP: ClassVar[str] = "Execution"

    workers: int | None = Field(default=None, ge=1, le=1024, description="worker processes; none: one per core")
    # a resumed run keeps the number that it started with, because results depend on it in the last bits
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="CPU threads per worker; none: the cores divided by the workers"
    )
    device: Device = Field(default="auto", description="device of the models; auto: a GPU if available, else the CPU")
    checkpoint_interval: float = Field(
        default=20.0, ge=0, le=1e9, description="seconds between checkpoints", json_schema_extra={"metavar": "SECONDS"}
    )
    retry_failed: bool = Field(default=False, description="repeat runs that failed with a non-finite value")
