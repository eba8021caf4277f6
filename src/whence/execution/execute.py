"""Execute one run: from its configuration or its last intact checkpoint to an end state in the store."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

import whence
from whence.execution.events import Event, OnEvent
from whence.execution.options import ExecutionOptions
from whence.random import Streams, preserve_rng_state
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import ChainWriter, read_chained, stored_digest
from whence.store.lock import Lock, LockedError
from whence.store.records import Environment, LogRecord, RunError, RunState, RunStatus, StoredConfig, read_as, write_as
from whence.store.runs import RunFolder, Store
from whence.store.verify import problems_of
from whence.system import cores, resolve_device
from whence.training import checkpoint
from whence.training.config import AnyRun, Trainable
from whence.training.optim import make_optimizer
from whence.training.trainer import Listener, NonFiniteError, Progress, train

OWN_FILES = ("config.json", "status.json", "metrics.jsonl", "log.jsonl", "model.safetensors")


def execute(
    config: AnyRun,
    store: Store,
    options: ExecutionOptions = ExecutionOptions(),
    on_event: OnEvent = lambda event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunStatus:
    """Run to the end and return the final status. Finished and diverged runs are verified and returned."""
    folder = store.folder(config.id)
    if disk.kind_of(folder.path) not in ("", "a directory"):
        message = f"{folder.id}: expected a directory (moved to {store.set_aside(folder.path)})"
        on_event(Event(kind="notice", run=folder.id, message=message))
    disk.make_directory(folder.path)
    with folder.lock() as lock:
        status = _completed(folder)
        if status is None:
            return _Execution(config, store, folder, lock, options, on_event, should_stop).run()
        reason = _reason_to_repeat(folder, status, options)
        if reason is None:
            status = _tidy(folder, store, status, on_event)
            on_event(Event.of_end("skipped" if status.state == "finished" else "failed", status))
            return status
        aside = store.set_aside(folder.path)
        on_event(Event(kind="notice", run=folder.id, message=f"{reason}; moved to {aside}, repeating the run"))
    return execute(config, store, options, on_event, should_stop)


def attempt(
    config: AnyRun, store: Store, options: ExecutionOptions, on_event: OnEvent, should_stop: Callable[[], bool]
) -> None:
    """`execute` for an engine: every failure becomes an event."""
    try:
        execute(config, store, options, on_event, should_stop)
    except LockedError:
        on_event(Event(kind="busy", run=config.id))
    except Exception as error:  # the store failed, so that the status could not be written
        on_event(Event(kind="failed", run=config.id, message=disk.explain(error)))


def _completed(folder: RunFolder) -> RunStatus | None:
    """The status of a run that is finished, or that diverged and would do so again; else None."""
    try:
        status = folder.written_status()
    except (OSError, CorruptFileError):
        return None
    return status if status.state == "finished" or status.diverged else None


def _reason_to_repeat(folder: RunFolder, status: RunStatus, options: ExecutionOptions) -> str | None:
    if status.state == "failed" and options.retry_failed:
        return "a failed run, with --retry-failed"
    leftover = ("log.jsonl", "checkpoint-") if status.state == "finished" else ("log.jsonl",)
    return next((problem for problem in problems_of(folder) if not problem.startswith(leftover)), None)


def _tidy(folder: RunFolder, store: Store, status: RunStatus, on_event: OnEvent) -> RunStatus:
    """Clean up after a kill or a damaged log in a completed run, whose results are intact."""
    if status.state == "finished":
        for saved in checkpoint.saved_checkpoints(folder.path):
            if disk.is_directory(saved):  # a directory in place of a file
                store.set_aside(saved)
        checkpoint.remove_all(folder.path)
    log = folder.path / "log.jsonl"
    with suppress(OSError, CorruptFileError):
        if stored_digest(log) == status.files["log.jsonl"]:
            return status
    message = "log.jsonl: damaged; starting a new one"
    if disk.kind_of(log):
        message += f" (moved to {store.set_aside(log)})"
    on_event(Event(kind="notice", run=folder.id, message=message))
    writer = ChainWriter(log)
    writer.append(LogRecord(event="log renewed", time=time.time()).to_json())
    writer.sync()
    writer.close()
    status = status.model_copy(update={"files": {**status.files, "log.jsonl": stored_digest(log)}})
    write_as(folder.path / "status.json", status)
    return status


@contextmanager
def _deterministic(threads: int) -> Generator[None]:
    """Deterministic kernels during a run; the caller's settings are restored afterwards."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    threads_before = torch.get_num_threads()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.set_num_threads(threads_before)


class _Execution:
    def __init__(
        self,
        config: AnyRun,
        store: Store,
        folder: RunFolder,
        lock: Lock,
        options: ExecutionOptions,
        on_event: OnEvent,
        should_stop: Callable[[], bool],
    ) -> None:
        self.config, self.store, self.folder, self.path, self.lock = config, store, folder, folder.path, lock
        self.options, self.on_event, self.should_stop = options, on_event, should_stop
        self.streams = Streams.of(config.seed)
        self.at = Progress()
        self.log: ChainWriter | None = None
        self.metrics: ChainWriter | None = None
        self.notices: list[str] = []
        self.created = time.time()
        self.last_checkpoint = self.last_status = self.last_event = time.monotonic()

    def run(self) -> RunStatus:
        self.threads = self.options.threads or cores()
        with preserve_rng_state(), _deterministic(self.threads):
            try:
                self._clear()
                self._write_config()
                self.log = self._open_log()
                status = self._guarded()
            finally:
                for file in (self.log, self.metrics):
                    if file is not None:
                        file.close()
        if status.state == "finished":
            checkpoint.remove_all(self.path)
        return status

    def _guarded(self) -> RunStatus:
        """Train; every exception becomes the error of a failed run."""
        try:
            return self._train()
        except NonFiniteError as failure:
            error = RunError(kind="non_finite", step=failure.step, tensor=failure.tensor, message=str(failure))
        except Exception as failure:
            self._log(LogRecord(event="traceback", time=time.time(), text=traceback.format_exc()))
            error = RunError(kind="exception", step=self.at.step, message=disk.explain(failure))
        return self._rest("failed", error)

    def _train(self) -> RunStatus:
        self.device = resolve_device(self.options.device)
        job = self.config.job()
        job.setup(self.streams, self.device)
        optimizer = job.optimizer(self.config.training) or make_optimizer(job.model, self.config.training)
        metrics = self.metrics = self._restore(job, optimizer)
        torch.set_num_threads(self.threads)
        event = "resumed" if self.at.step else "started"
        conditions, notices = self._environment(), tuple(self.notices)
        self._log(LogRecord(event=event, time=time.time(), environment=conditions, notices=notices))
        self.on_event(Event(kind="started", run=self.config.id, step=self.at.step))

        def save(at: Progress) -> None:
            facts = checkpoint.CheckpointFacts(
                progress=at, metrics_mark=metrics.sync(), created=self.created, environment=self._environment()
            )
            self.lock.check()
            checkpoint.save(self.path, job.model, optimizer, facts)
            self.last_checkpoint = time.monotonic()
            self._write_status("running")

        listener = Listener(
            record=lambda record: metrics.append(record.model_dump(mode="json")),
            checkpoint=save,
            progress=self._progress,
            checkpoint_due=lambda: time.monotonic() - self.last_checkpoint >= self.options.checkpoint_interval,
            should_stop=self.should_stop,
        )
        if self.at.step == 0:
            save(self.at)  # from here on there is a checkpoint; a full disk is noticed at once
        try:
            done = train(job, self.config.training, self.streams, optimizer, self.at, listener)
        except NonFiniteError:
            if all(parameter.isfinite().all() for parameter in job.model.parameters()):
                save(self.at)
            raise
        if done:
            self.lock.check()
            checkpoint.save_weights(self.folder, job.model)
        return self._rest("finished" if done else "interrupted")

    # --- resuming

    def _clear(self) -> None:
        """Remove temporary files that a kill left, and set aside directories and links in place of files."""
        for path in disk.entries(self.path):
            if path.name.startswith(disk.TEMPORARY):
                disk.remove_tree(path)
            elif _is_own(path.name) and disk.kind_of(path) != "a file":
                self._notice(f"{path.name}: expected a file, found {disk.kind_of(path)}", path)

    def _write_config(self) -> None:
        path = self.path / "config.json"
        config = StoredConfig(
            config=self.config.document(), versions=self.config.versions(), streams=asdict(self.streams)
        )
        try:
            if read_as(StoredConfig, path) == config:
                return
            self._notice("config.json: describes another run; rewritten", path)
        except FileNotFoundError:
            pass
        except CorruptFileError as damage:
            self._notice(f"config.json: {damage.reason}; rewritten", path)
        write_as(path, config)

    def _open_log(self) -> ChainWriter:
        path = self.path / "log.jsonl"
        try:
            return ChainWriter(path, read_chained(path)[1])
        except CorruptFileError as damage:
            self._notice(f"log.jsonl: {damage.reason}; starting a new one", path)
            return ChainWriter(path)

    def _restore(self, job: Trainable[Any], optimizer: torch.optim.Optimizer) -> ChainWriter:
        """Restore the newest checkpoint that is intact and has intact metrics; start over if there is none."""
        path = self.path / "metrics.jsonl"
        self._check_old_status()
        for saved in checkpoint.saved_checkpoints(self.path):
            try:
                tensors, facts = checkpoint.read(saved, job.model)
                checkpoint.check_metrics(self.path, facts)
            except CorruptFileError as damage:
                self._notice(f"{damage.path.name}: {damage.reason}; trying the checkpoint before it", saved)
                continue
            checkpoint.restore(tensors, job.model, optimizer)
            self.at, self.created = facts.progress, facts.created
            self._note_changes(facts.environment)
            return ChainWriter(path, facts.metrics_mark)
        if disk.kind_of(path) and path.stat().st_size:
            self._notice("metrics.jsonl: no intact checkpoint belongs to it; starting over", path)
        return ChainWriter(path)

    def _note_changes(self, before: Environment) -> None:
        """Use the earlier number of threads, on which the last digits of results depend; report other changes."""
        self.threads = before.threads
        pairs = zip(before, self._environment(), strict=True)
        changed = [f"{name} {old} → {new}" for (name, old), (_, new) in pairs if old != new]
        if changed:
            self._notice(f"resumed in another environment ({', '.join(changed)}): last digits may differ", None)

    def _check_old_status(self) -> None:
        path = self.path / "status.json"
        try:
            status = self.folder.written_status()
        except FileNotFoundError:
            return
        except CorruptFileError as damage:
            self._notice(f"status.json: {damage.reason}; rewritten", path)
            return
        self.created = status.created
        for name, expected in status.files.items():
            target = self.path / name
            if disk.kind_of(target) and name != "log.jsonl" and not _matches(target, expected):
                self._notice(f"{name}: checksum differs from the one stored when the run stopped", None)

    # --- reporting

    def _environment(self) -> Environment:
        return Environment(
            threads=self.threads,
            device=str(self.device),
            machine=platform.machine(),
            python=platform.python_version(),
            torch=torch.__version__,
            whence=whence.__version__,
        )

    def _log(self, record: LogRecord) -> None:
        assert self.log is not None
        self.lock.check()
        self.log.append(record.to_json())
        self.log.sync()

    def _notice(self, message: str, damaged: Path | None) -> None:
        if damaged is not None and disk.kind_of(damaged):
            message += f" (moved to {self.store.set_aside(damaged)})"
        self.notices.append(message)
        self.on_event(Event(kind="notice", run=self.config.id, message=message))

    def _progress(self, at: Progress) -> None:
        if time.monotonic() - self.last_event > 0.1:
            headline = at.latest.get("headline", {})
            self.on_event(Event(kind="progress", run=self.config.id, step=at.step, loss=at.loss, headline=headline))
            self.last_event = time.monotonic()
        if time.monotonic() - self.last_status > 2:
            self._write_status("running")

    def _write_status(
        self, state: RunState, files: dict[str, str] | None = None, error: RunError | None = None
    ) -> RunStatus:
        labels = self.config.labels()
        status = RunStatus(
            id=self.config.id,
            kind=self.config.kind,
            title=" · ".join(labels.values()),
            labels=labels,
            seed=self.config.seed,
            state=state,
            steps=self.config.training.steps,
            **asdict(self.at),
            headline=self.at.latest.get("headline", {}),
            created=self.created,
            updated=time.time(),
            files=files or {},
            error=error,
        )
        self.lock.check()
        write_as(self.path / "status.json", status, durable=state != "running")
        self.last_status = time.monotonic()
        return status

    def _rest(self, state: Literal["finished", "failed", "interrupted"], error: RunError | None = None) -> RunStatus:
        """Write the last status, which holds the checksum of every other file."""
        self._log(LogRecord(event=state, time=time.time(), step=self.at.step, error=error))
        if self.metrics is not None:
            self.metrics.sync()
        lasting = [self.path / "config.json", self.path / "metrics.jsonl", self.path / "log.jsonl", self.folder.weights]
        if state != "finished":
            lasting += checkpoint.saved_checkpoints(self.path)
        files = {path.name: stored_digest(path) for path in lasting if disk.kind_of(path)}
        status = self._write_status(state, files, error)
        self.on_event(Event.of_end(state, status))
        return status


def _matches(path: Path, checksum: str) -> bool:
    with suppress(CorruptFileError):
        return stored_digest(path) == checksum
    return False


def _is_own(name: str) -> bool:
    return name in OWN_FILES or checkpoint.NAME.fullmatch(name) is not None


def bytes_needed(parameters: int, runs: int, workers: int) -> int:
    """Upper bound of the disk space for a sweep: the weights of finished runs, and the checkpoints of running ones
    with two moments each, one of them being written."""
    weights = 4 * parameters
    return runs * (weights + 2**18) + workers * 3 * weights * (checkpoint.SAVED + 1)
