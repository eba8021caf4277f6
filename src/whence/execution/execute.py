"""One run from its spec to a resting state in the store: start, or go on from the last good checkpoint."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

import whence
from whence.execution.options import ExecutionOptions
from whence.random import Streams, preserve_rng_state
from whence.store.files import (
    TEMPORARY,
    ChainWriter,
    CorruptFileError,
    file_digest,
    read_chained,
    read_sealed,
    write_sealed,
)
from whence.store.runs import RunFolder, Store
from whence.store.verify import problems_of
from whence.system import cores, resolve_device
from whence.training import checkpoint
from whence.training.config import FORMAT, RunConfig, Trainable
from whence.training.optim import make_optimizer
from whence.training.trainer import Listener, NonFiniteError, Progress, train

Event = dict[str, Any]


def execute(
    spec: RunConfig,
    store: Store,
    options: ExecutionOptions = ExecutionOptions(),
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run to the end and return the final status. Settled runs are returned as they are, after a check."""
    folder = store.folder(spec.id)
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.lock():
        status = _settled(folder)
        if status is None:
            return _Execution(spec, store, folder, options, on_event, should_stop).run()
        reason = _reason_to_repeat(folder, status, options)
        if reason is None:
            _tidy(folder, store, status, on_event)
            on_event({"event": END_OF[status["state"]], "run": folder.id, "status": status})
            return status
        aside = store.set_aside(folder.path)
        on_event({"event": "notice", "run": folder.id, "message": f"{reason}; kept in {aside}, running it again"})
    return execute(spec, store, options, on_event, should_stop)


END_OF = {"finished": "skipped", "failed": "failed"}


def _settled(folder: RunFolder) -> dict[str, Any] | None:
    """The status of a run that more training would not change: finished, or sure to fail again exactly."""
    try:
        status = read_sealed(folder.path / "status.json")
    except (OSError, CorruptFileError):
        return None
    hopeless = status["state"] == "failed" and status["error"]["kind"] == "non_finite"
    return status if status["state"] == "finished" or hopeless else None


def _reason_to_repeat(folder: RunFolder, status: dict[str, Any], options: ExecutionOptions) -> str | None:
    if status["state"] == "failed" and options.retry_failed:
        return "asked to try again"
    leftover = ("log.jsonl", "checkpoint-") if status["state"] == "finished" else ("log.jsonl",)
    return next((problem for problem in problems_of(folder) if not problem.startswith(leftover)), None)


def _tidy(folder: RunFolder, store: Store, status: dict[str, Any], on_event: Callable[[Event], None]) -> None:
    """What a kill or a damaged log left behind in a settled run, whose results are whole."""
    if status["state"] == "finished":
        for old in checkpoint.found(folder.path):
            old.unlink()
    log = folder.path / "log.jsonl"
    if not log.exists() or file_digest(log) != status["files"]["log.jsonl"]:
        message = "log.jsonl: damaged; a new one begins"
        if log.exists():
            message += f" (kept in {store.set_aside(log)})"
        on_event({"event": "notice", "run": folder.id, "message": message})
        writer = ChainWriter(log)
        writer.append({"event": "log renewed", "time": time.time()})
        writer.close()
        status["files"]["log.jsonl"] = file_digest(log)
        write_sealed(folder.path / "status.json", status)


@contextmanager
def _deterministic(threads: int) -> Iterator[None]:
    """Deterministic kernels while a run is on; the caller's settings afterwards."""
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
        spec: RunConfig,
        store: Store,
        folder: RunFolder,
        options: ExecutionOptions,
        on_event: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self.spec, self.store, self.folder, self.path = spec, store, folder, folder.path
        self.options, self.on_event, self.should_stop = options, on_event, should_stop
        self.streams = Streams.of(spec.seed)
        self.at = Progress()
        self.log: ChainWriter | None = None
        self.metrics: ChainWriter | None = None
        self.notices: list[str] = []
        self.created = time.time()
        self.last_checkpoint = self.last_status = self.last_told = time.monotonic()

    def run(self) -> dict[str, Any]:
        self.threads = self.options.threads or cores()
        with preserve_rng_state(), _deterministic(self.threads):
            try:
                self._clear_temporary_files()
                self._write_spec()
                self.log = self._open_log()
                status = self._guarded()
            finally:
                for file in (self.log, self.metrics):
                    if file is not None:
                        file.close()
        if status["state"] == "finished":
            for old in checkpoint.found(self.path):
                old.unlink()
        return status

    def _guarded(self) -> dict[str, Any]:
        """Train; whatever goes wrong becomes the run's own end."""
        try:
            return self._train()
        except NonFiniteError as failure:
            error = {"kind": "non_finite", "step": failure.step, "tensor": failure.tensor, "message": str(failure)}
        except Exception as failure:
            self._log("traceback", text=traceback.format_exc())
            error = {"kind": "exception", "step": self.at.step, "message": f"{type(failure).__name__}: {failure}"}
        return self._rest("failed", error)

    def _train(self) -> dict[str, Any]:
        self.device = resolve_device(self.options.device)
        job = self.spec.job()
        job.setup(self.streams, self.device)
        optimizer = job.optimizer(self.spec.training) or make_optimizer(job.model, self.spec.training)
        metrics = self.metrics = self._restore(job, optimizer)
        torch.set_num_threads(self.threads)
        self._log("resumed" if self.at.step else "started", **self._environment(), notices=self.notices)
        self._emit("started", step=self.at.step)

        def save(at: Progress) -> None:
            facts = {**asdict(at), "metrics_mark": metrics.sync(), "created": self.created}
            checkpoint.save(self.path, at.step, job.model, optimizer, {**facts, "environment": self._environment()})
            self.last_checkpoint = time.monotonic()
            self._write_status("running")

        listener = Listener(
            record=metrics.append,
            checkpoint=save,
            progress=self._progress,
            checkpoint_due=lambda: time.monotonic() - self.last_checkpoint >= self.options.checkpoint_interval,
            should_stop=self.should_stop,
        )
        if self.at.step == 0:
            save(self.at)  # there is always a last good state, and a disk that cannot hold it shows at once
        try:
            done = train(job, self.spec.training, self.streams, optimizer, self.at, listener)
        except NonFiniteError:
            if all(parameter.isfinite().all() for parameter in job.model.parameters()):
                save(self.at)
            raise
        if not done:
            return self._rest("interrupted")
        checkpoint.save_weights(self.folder.weights, job.model)
        return self._rest("finished")

    # --- coming back

    def _clear_temporary_files(self) -> None:
        for leftover in self.path.glob(f"{TEMPORARY}*"):
            leftover.unlink()

    def _write_spec(self) -> None:
        path = self.path / "spec.json"
        described = {"spec": self.spec.document(), "versions": self.spec.versions()}
        body = {"format": FORMAT, **described, "streams": asdict(self.streams)}
        try:
            if read_sealed(path) == body:
                return
            self._notice("spec.json does not describe this run; rewritten", path)
        except FileNotFoundError:
            pass
        except CorruptFileError as damage:
            self._notice(f"spec.json: {damage.reason}; rewritten", path)
        write_sealed(path, body)

    def _open_log(self) -> ChainWriter:
        path = self.path / "log.jsonl"
        try:
            return ChainWriter(path, read_chained(path)[1])
        except CorruptFileError as damage:
            self._notice(f"log.jsonl: {damage.reason}; a new one begins", path)
            return ChainWriter(path)

    def _restore(self, job: Trainable, optimizer: torch.optim.Optimizer) -> ChainWriter:
        """Go back to the newest checkpoint that is whole and whose metrics are whole; else to the beginning."""
        path = self.path / "metrics.jsonl"
        self._check_old_status()
        for saved in checkpoint.found(self.path):
            try:
                tensors, facts = checkpoint.read(saved, job.model)
                size, link = facts["metrics_mark"]
                if read_chained(path, upto=size)[1] != (size, link):
                    raise CorruptFileError(path, "does not match the checkpoint")
            except CorruptFileError as damage:
                self._notice(f"{damage.path.name}: {damage.reason}; going back further", saved)
                continue
            checkpoint.restore(tensors, job.model, optimizer)
            self.at = Progress(**{field.name: facts[field.name] for field in fields(Progress)})
            self.created = facts["created"]
            self._note_changes(facts["environment"])
            return ChainWriter(path, (size, link))
        if path.exists() and path.stat().st_size:
            self._notice("metrics.jsonl: no usable checkpoint goes with it; starting over", path)
        return ChainWriter(path)

    def _note_changes(self, before: dict[str, Any]) -> None:
        """Threads are taken over, because results depend on them in the last bits; other changes are said."""
        self.threads = before["threads"]
        changed = [f"{key} {before[key]} → {now}" for key, now in self._environment().items() if before[key] != now]
        if changed:
            self._notice(f"goes on under other conditions ({', '.join(changed)}): last digits may differ", None)

    def _check_old_status(self) -> None:
        path = self.path / "status.json"
        try:
            status = read_sealed(path)
        except FileNotFoundError:
            return
        except CorruptFileError as damage:
            self._notice(f"status.json: {damage.reason}; rewritten", path)
            return
        self.created = status["created"]
        for name, expected in status.get("files", {}).items():
            target = self.path / name
            if target.exists() and name != "log.jsonl" and file_digest(target) != expected:
                self._notice(f"{name}: checksum does not match the one noted when the run stopped", None)

    # --- telling

    def _environment(self) -> dict[str, Any]:
        return {
            "threads": self.threads,
            "device": str(self.device),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "whence": whence.__version__,
        }

    def _log(self, event: str, **facts: Any) -> None:
        assert self.log is not None
        self.log.append({"event": event, "time": time.time(), **facts})
        self.log.sync()

    def _notice(self, message: str, damaged: Path | None) -> None:
        if damaged is not None and damaged.exists():
            message += f" (kept in {self.store.set_aside(damaged)})"
        self.notices.append(message)
        self._emit("notice", message=message)

    def _emit(self, event: str, **facts: Any) -> None:
        self.on_event({"event": event, "run": self.spec.id, **facts})

    def _progress(self, at: Progress) -> None:
        if time.monotonic() - self.last_told > 0.1:
            self._emit("progress", step=at.step, loss=at.loss, headline=at.latest.get("headline", {}))
            self.last_told = time.monotonic()
        if time.monotonic() - self.last_status > 2:
            self._write_status("running")

    def _write_status(self, state: str, **more: Any) -> dict[str, Any]:
        resting = state != "running"
        status = {
            "id": self.spec.id,
            "kind": self.spec.kind,
            "title": " · ".join(self.spec.labels().values()),
            "labels": self.spec.labels(),
            "seed": self.spec.seed,
            "state": state,
            "steps": self.spec.training.steps,
            **asdict(self.at),
            "headline": self.at.latest.get("headline", {}),
            "created": self.created,
            "updated": time.time(),
            **more,
        }
        write_sealed(self.path / "status.json", status, durable=resting)
        self.last_status = time.monotonic()
        return status

    def _lasting_files(self, state: str) -> list[str]:
        names = ["spec.json", "metrics.jsonl", "log.jsonl", self.folder.weights.name]
        if state != "finished":
            names += [path.name for path in checkpoint.found(self.path)]
        return [name for name in names if (self.path / name).exists()]

    def _rest(self, state: str, error: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write the last status, which pins every other file by its checksum."""
        self._log(state, step=self.at.step, **({"error": error} if error else {}))
        if self.metrics is not None:
            self.metrics.sync()
        files = {name: file_digest(self.path / name) for name in self._lasting_files(state)}
        status = self._write_status(state, files=files, **({"error": error} if error else {}))
        self._emit(state, status=status)
        return status


def bytes_needed(parameters: int, runs: int, workers: int) -> int:
    """Upper estimate for a sweep. Finished runs keep their weights; running ones also checkpoints, with two moments
    each, and one more while it is being written."""
    weights = 4 * parameters
    return runs * (weights + 2**18) + workers * 3 * weights * (checkpoint.KEPT + 1)
