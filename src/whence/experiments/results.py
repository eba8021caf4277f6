"""Results of planned runs, read from a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.records import EvaluationRecord, LossRecord, MetricsRecord, RunStatus
from whence.store.runs import Store
from whence.training.config import AnyRun, M, RunConfig

R = TypeVar("R", bound=AnyRun, covariant=True)
LARGEST_NUMBER = 1e30
State = Literal["finished", "failed", "damaged", "unfinished", "not run"]


@dataclass(frozen=True)
class Evaluation(Generic[M]):
    step: int
    metrics: M


@dataclass(frozen=True)
class RunResult(Generic[R]):
    """One planned run. Only finished runs enter averages; failed and damaged runs have a reason."""

    run: R
    state: State
    reason: str = ""
    diverged: bool = False
    """Failed because its numbers diverged, which is reproducible. Other failures are no evidence on the method."""
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the last evaluation; empty unless finished"""
    losses: Sequence[LossRecord] = ()
    """By step; empty unless finished"""
    evaluations: Sequence[EvaluationRecord] = ()
    """By step; empty unless finished. `evaluations_of` reads their metrics"""
    seconds: float = 0.0
    tokens: int = 0

    @property
    def ended(self) -> bool:
        """Whether running it again would give the same result."""
        return self.state == "finished" or self.diverged


def final_metrics(result: RunResult[RunConfig[M, Any]]) -> M:
    """Of the last evaluation of a finished run."""
    return result.run.metrics_class().model_validate(result.metrics)


def evaluations_of(result: RunResult[RunConfig[M, Any]]) -> list[Evaluation[M]]:
    """All evaluations by step; empty unless finished."""
    read = result.run.metrics_class().model_validate
    return [Evaluation(record.step, read(record.metrics)) for record in result.evaluations]


def read_results(runs: Sequence[R], store: Store, ends: Mapping[str, str] = {}) -> list[RunResult[R]]:
    """Read the results of runs. `ends`: how their processes ended, for runs whose files do not show it."""
    return [_read(run, store, ends.get(run.id, "")) for run in runs]


def _read(run: R, store: Store, end: str) -> RunResult[R]:
    folder, status = store.folder(run.id), None
    try:
        if disk.kind_of(folder.path / "status.json"):
            status = folder.status()
        if status and status.state == "finished":
            return _finished(run, status, folder.metrics())
        if status and status.state == "failed":
            return RunResult(run, "failed", status.reason, status.diverged)
    except (OSError, CorruptFileError) as damage:
        return RunResult(run, "damaged", str(damage))
    if end == "crashed":
        return RunResult(run, "failed", "its process died; run the same command again")
    return RunResult(run, "unfinished" if status else "not run")


def _check_numbers(document: Any) -> None:
    """Raise ValueError for numbers that no finished run has: training stops at the first that is not finite."""
    if isinstance(document, int | float) and not abs(document) <= LARGEST_NUMBER:
        raise ValueError(f"expected numbers up to {LARGEST_NUMBER:g}, got {document}")
    if isinstance(document, dict):
        document = list(cast(dict[Any, Any], document).values())
    if isinstance(document, list | tuple):
        for part in cast(Sequence[Any], document):
            _check_numbers(part)


def _finished(run: R, status: RunStatus, records: Sequence[MetricsRecord]) -> RunResult[R]:
    result = RunResult(
        run,
        "finished",
        metrics=status.latest,
        losses=[record for record in records if isinstance(record, LossRecord)],
        evaluations=[record for record in records if isinstance(record, EvaluationRecord)],
        seconds=status.seconds,
        tokens=status.tokens,
    )
    try:
        final = final_metrics(result)
        run.check_metrics(final)
        _check_numbers(final.model_dump())
        for evaluation in evaluations_of(result):
            _check_numbers(evaluation.metrics.model_dump())
    except ValueError as error:  # intact files whose content is not what the instrument computes
        return RunResult(run, "damaged", f"{run.id}: not metrics of {run.kind} ({str(error).splitlines()[0]})")
    return result
