"""What the files of a run hold, as types. Their JSON is read and written through these classes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import pydantic
from pydantic import Field

from whence.config import Config
from whence.store.files import CorruptFileError, read_sealed, write_sealed

RunState = Literal["running", "finished", "failed", "interrupted", "corrupt"]
D = TypeVar("D", bound=Config)


def read_as(kind: type[D], path: Path) -> D:
    """A sealed document; `CorruptFileError` unless it is whole, of this format and of this type."""
    return parse_as(kind, read_sealed(path), path)


def parse_as(kind: type[D], document: Any, path: Path) -> D:
    try:
        return kind.model_validate(document)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise CorruptFileError(path, f"not a {kind.__name__} ({place}: {first['msg']})") from None


def write_as(path: Path, document: Config, *, durable: bool = True) -> None:
    write_sealed(path, document.model_dump(mode="json"), durable=durable)


class StoredConfig(Config):
    """config.json: what was requested, all that decides the result beside it, and the seeds of the random streams."""

    config: dict[str, Any]
    """As `RunConfig.document` gives it; `load_run_config` reads it"""
    versions: dict[str, int]
    streams: dict[str, int]


class RunError(Config):
    """Why a run failed, or why it cannot be read."""

    kind: Literal["non_finite", "exception", "unreadable"]
    message: str
    step: int | None = None
    tensor: str | None = None


class RunSummary(Config):
    """A row in a list of runs. What could not be read has an error and no numbers."""

    id: str
    state: RunState
    kind: str = ""
    """The instrument"""
    title: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    seed: int | None = None
    steps: int = 0
    """Of the whole training"""
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float | None = None
    evaluated: int = -1
    """The step of the latest evaluation"""
    headline: dict[str, float] = Field(default_factory=dict)
    created: float = 0.0
    """Seconds since 1970; 0 if unknown"""
    updated: float = 0.0
    error: RunError | None = None

    @property
    def diverged(self) -> bool:
        """Failed by its own numbers, as it would again. Other failures say nothing about the configuration."""
        return self.state == "failed" and self.error is not None and self.error.kind == "non_finite"

    @property
    def reason(self) -> str:
        """Why it failed; empty if it did not."""
        return self.error.message if self.error else ""

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude=None if self.error else {"error"})


class RunStatus(RunSummary):
    """status.json: where a run stands."""

    latest: dict[str, Any] = Field(default_factory=dict)
    """Metrics of the latest evaluation; `RunConfig.metrics_class` reads them"""
    files: dict[str, str] = Field(default_factory=dict)
    """Checksums of all other files by name, once the run rests"""

    def summary(self) -> RunSummary:
        return RunSummary.model_construct(**{name: getattr(self, name) for name in RunSummary.model_fields})


class LossRecord(Config):
    """A line of metrics.jsonl: one training step."""

    step: int
    loss: float
    grad_norm: float
    lr: float


class EvaluationRecord(Config):
    """A line of metrics.jsonl: one evaluation."""

    step: int
    metrics: dict[str, Any]
    """`RunConfig.metrics_class` reads them"""

    @property
    def headline(self) -> dict[str, float]:
        return self.metrics.get("headline", {})


MetricsRecord = LossRecord | EvaluationRecord


class Environment(Config):
    """On what a run was executed. Results depend on it in the last bits."""

    threads: int
    device: str
    machine: str
    python: str
    torch: str
    whence: str


class LogRecord(Config):
    """A line of log.jsonl: a start, a stop or a mishap."""

    event: Literal["started", "resumed", "finished", "failed", "interrupted", "traceback", "log renewed"]
    time: float
    step: int | None = None
    environment: Environment | None = None
    notices: tuple[str, ...] = ()
    error: RunError | None = None
    text: str | None = None

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
