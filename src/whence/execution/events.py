"""The messages between an engine and its workers, as JSON lines: requests to a worker, events from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from pydantic import Field

from whence.config import Config
from whence.execution.options import ExecutionOptions
from whence.store.records import RunStatus

RunEnd = Literal["finished", "skipped", "failed", "interrupted", "busy", "crashed"]
"""How a run ended here. Skipped: it was cached. Busy: another process is running it. Crashed: its process died."""
RUN_ENDS: tuple[RunEnd, ...] = get_args(RunEnd)


class Event(Config):
    """An event of a run, or without a run, of an engine (`stopping`) or of a worker (`idle`)."""

    kind: Literal[RunEnd, "started", "progress", "notice", "stopping", "idle"]
    run: str = ""
    step: int = 0
    loss: float | None = None
    headline: dict[str, float] = Field(default_factory=dict)
    message: str = ""

    @property
    def end(self) -> RunEnd | None:
        return self.kind if self.kind in RUN_ENDS else None

    @classmethod
    def of_end(cls, end: RunEnd, status: RunStatus) -> Event:
        step, loss, headline, message = status.step, status.loss, status.headline, status.reason
        return cls(kind=end, run=status.id, step=step, loss=loss, headline=headline, message=message)


OnEvent = Callable[[Event], None]


class RunRequest(Config):
    config: dict[str, Any]
    store: str
    options: ExecutionOptions
