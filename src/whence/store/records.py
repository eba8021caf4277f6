"""The contents of a run's files, as types. Their JSON is read and written through these classes only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

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
LONGEST_TEXT = 20_000
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Labels = Annotated[dict[Annotated[str, Field(max_length=100)], Text], Field(max_length=100)]
Headline = Annotated[dict[Annotated[str, Field(max_length=200)], float], Field(max_length=100)]
"""The few numbers that a list of runs shows"""
HEADLINE = pydantic.TypeAdapter(Headline, config=pydantic.ConfigDict(allow_inf_nan=False))


def _with_headline(metrics: dict[str, Any]) -> dict[str, Any]:
    HEADLINE.validate_python(metrics.get("headline", {}))
    return metrics


MetricsDocument = Annotated[dict[str, Any], AfterValidator(_with_headline)]
"""`RunConfig.metrics_class` reads all of it"""


def read_as(kind: type[D], path: Path) -> D:
    """Read a sealed document; `CorruptFileError` unless it is intact, of this format and of this type."""
    return parse_as(kind, read_sealed(path), path)


def parse_as(kind: type[D], document: Any, path: Path) -> D:
    try:
        return kind.model_validate(document)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))[:100]
        raise CorruptFileError(path, f"not a {kind.__name__} ({place}: {first['msg'][:200]})") from None


def write_as(path: Path, document: Config, *, durable: bool = True) -> None:
    write_sealed(path, document.model_dump(mode="json"), durable=durable)


class StoredConfig(Config):
    """config.json: the configuration, versions that the result depends on, and the seeds of the random streams."""

    config: dict[str, Any]
    """The return value of `RunConfig.document`; `load_run_config` reads it"""
    versions: dict[str, int]
    streams: dict[str, int]

    @property
    def run_id(self) -> str:
        return run_id(self.config, self.versions)


def run_id(document: dict[str, Any], versions: dict[str, int]) -> str:
    """The content hash of a configuration and of the versions that its result depends on."""
    return digest(canonical({"config": document, "versions": versions}))[:12]


def shortened(text: Any) -> Any:
    """The message of an exception may be of any length."""
    return f"{text[: LONGEST_TEXT - 2]} …" if isinstance(text, str) and len(text) > LONGEST_TEXT else text


class RunError(Config):
    """Why a run failed, or why it cannot be read."""

    kind: Literal["non_finite", "exception", "unreadable"]
    message: Annotated[str, BeforeValidator(shortened), Field(max_length=LONGEST_TEXT)]
    step: Count | None = None
    tensor: Text | None = None


class RunSummary(Config):
    """A row in a list of runs. A run that cannot be read has an error and no metrics."""

    id: Id
    state: RunState
    kind: Annotated[str, Field(max_length=40)] = ""
    """The instrument"""
    title: Text = ""
    labels: Labels = Field(default_factory=dict)
    seed: Count | None = None
    steps: Count = 0
    """Of the whole training"""
    step: Count = 0
    tokens: Count = 0
    seconds: Seconds = 0.0
    loss: float | None = None
    evaluated: Annotated[int, Field(ge=-1, le=2**63)] = -1
    """The step of the latest evaluation"""
    headline: Headline = Field(default_factory=dict)
    created: Time = 0.0
    updated: Time = 0.0
    error: RunError | None = None

    @property
    def diverged(self) -> bool:
        """Whether it failed with a non-finite value, which would happen again. Other failures may be temporary."""
        return self.state == "failed" and self.error is not None and self.error.kind == "non_finite"

    @property
    def reason(self) -> str:
        """The message of its error; empty if there is none."""
        return self.error.message if self.error else ""

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude=None if self.error else {"error"})


class RunStatus(RunSummary):
    """status.json: state and latest metrics of a run."""

    latest: MetricsDocument = Field(default_factory=dict)
    """Metrics of the latest evaluation"""
    files: dict[FileName, Checksum] = Field(default_factory=dict)
    """Checksums of all other files by name, once the run has stopped"""

    @pydantic.model_validator(mode="after")
    def _not_beyond_its_end(self) -> Self:
        if self.step > self.steps:
            raise ValueError(f"step {self.step} of {self.steps}")
        return self

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
    metrics: MetricsDocument

    @property
    def headline(self) -> dict[str, float]:
        return self.metrics.get("headline", {})


MetricsRecord = LossRecord | EvaluationRecord


class Environment(Config):
    """The environment of a run, on which the last bits of results depend."""

    threads: Annotated[int, Field(ge=1, le=2**20)]
    device: Text
    machine: Text
    python: Text
    torch: Text
    whence: Text


class LogRecord(Config):
    """A line of log.jsonl: a start, a stop or a failure."""

    event: Literal["started", "resumed", "finished", "failed", "interrupted", "traceback", "log renewed"]
    time: Time
    step: Count | None = None
    environment: Environment | None = None
    notices: tuple[str, ...] = ()
    error: RunError | None = None
    text: str | None = None

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
