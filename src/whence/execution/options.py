"""Where and how to run. None of this is part of a run's identity."""

from __future__ import annotations

from dataclasses import dataclass

from whence.system import Device


@dataclass(frozen=True)
class ExecutionOptions:
    """For one run or for many."""

    workers: int | None = None
    """Processes; by default one per core, and no more than there are runs"""
    threads: int | None = None
    """CPU threads per run; a resumed run keeps the number it started with, because results depend on it in the last
    bits"""
    device: Device = "auto"
    checkpoint_interval: float = 20.0
    """Seconds between checkpoints"""
    retry_failed: bool = False
