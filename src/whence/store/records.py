"""What the files of a run hold, as types. Their JSON is read and written through these classes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import Field

from whence.config import Config
from whence.store.disk import CorruptFileError
from whence.store.files import canonical, digest, read_sealed, write_sealed

RunState = Literal["running", "finished", "failed", "interrupted", "corrupt"]
D = TypeVar("D", bound=Config)
RUN_ID = r"[0-9a-f]{12}"
# bounds: what is read may come from anybody, and is added, formatted and shown as a date
Id = Annotated[str, Field(pattern=f"^{RUN_ID}$")]
Count = Annotated[int, Field(ge=0, le=2**63)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Time = Annotated[float, Field(ge=0, le=253370764800)]
"""Seconds since 1970, up to the year 9998; 0 if unknown"""
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=255)]
Checksum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


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

    @property
    def run_id(self) -> str:
        return run_id(self.config, self.versions)


def run_id(document: dict[str, Any], versions: dict[str, int]) -> str:
    """The content hash of a configuration and of whatever decides its result beside it."""
    return digest(canonical({"config": document, "versions": versions}))[:12]


class RunError(Config):
    """Why a run failed, or why it cannot be read."""

    kind: Literal["non_finite", "exception", "unreadable"]
    message: str
    step: Count | None = None
    tensor: str | None = None


class RunSummary(Config):
    """A row in a list of runs. What could not be read has an error and no numbers."""

    id: Id
    state: RunState
    kind: str = ""
    """The instrument"""
    title: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    seed: int | None = None
    steps: Count = 0
    """Of the whole training"""
    step: Count = 0
    tokens: Count = 0
    seconds: Seconds = 0.0
    loss: float | None = None
    evaluated: int = -1
    """The step of the latest evaluation"""
    headline: dict[str, float] = Field(default_factory=dict)
    created: Time = 0.0
    updated: Time = 0.0
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
    files: dict[FileName, Checksum] = Field(default_factory=dict)
    """Checksums of all other files by name, once the run rests"""

    def summary(self) -> RunSummary:
        return RunSummary.model_construct(**{name: getattr(self, name) for name in RunSummary.model_fields})


class LossRecord(Config):
    """A line of metrics.jsonl: one training step."""

    step: Count
    loss: float
    grad_norm: float
    lr: float


class EvaluationRecord(Config):
    """A line of metrics.jsonl: one evaluation."""

    step: Count
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
    time: Time
    step: Count | None = None
    environment: Environment | None = None
    notices: tuple[str, ...] = ()
    error: RunError | None = None
    text: str | None = None

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
