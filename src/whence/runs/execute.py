"""One run from its spec to a resting state in the store: start, or go on from the last good checkpoint."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import whence
from whence.device import Device, resolve_device
from whence.runs import checkpoint
from whence.runs.files import TEMPORARY, ChainWriter, Corrupt, file_digest, read_chained, read_sealed, write_sealed
from whence.runs.loop import Listener, NonFinite, Progress, make_optimizer, train
from whence.runs.spec import Job, RunSpec
from whence.runs.store import FORMAT, RunFolder, Store
from whence.runs.streams import Streams, ambient_kept
from whence.runs.verify import problems_of

Event = dict[str, Any]


@dataclass(frozen=True)
class Conditions:
    """Where and how carefully to run. Not part of a run's identity."""

    device: Device = "auto"
    threads: int | None = None
    """CPU threads; a resumed run keeps the number it started with, because results depend on it in the last bits."""
    checkpoint_seconds: float = 20.0
    retry_failed: bool = False


def execute(
    spec: RunSpec,
    store: Store,
    conditions: Conditions = Conditions(),
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run to the end and return the final status. Finished runs are returned as they are, after a check."""
    folder = store.folder(spec.id)
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.lock():
        done = _already_done(folder, store, conditions, on_event)
        if done is not None:
            return done
        folder.path.mkdir(parents=True, exist_ok=True)  # a damaged one has just been moved away
    with folder.lock(), ambient_kept(), _machine_settings():
        execution = _Execution(spec, store, folder, conditions, on_event, should_stop)
        try:
            return execution.run()
        finally:
            execution.close()


def _already_done(
    folder: RunFolder, store: Store, conditions: Conditions, on_event: Callable[[Event], None]
) -> dict[str, Any] | None:
    """The status of a run that needs no more work. A damaged finished run is moved away, to be run again."""
    try:
        status = read_sealed(folder.path / "status.json")
    except (OSError, Corrupt):
        return None
    hopeless = status["state"] == "failed" and status["error"]["kind"] == "non_finite"  # it would fail again, exactly
    if status["state"] != "finished" and not (hopeless and not conditions.retry_failed):
        return None
    problems = problems_of(folder)
    if problems:
        aside = store.set_aside(folder.path)
        on_event({"event": "notice", "run": folder.id, "message": f"{problems[0]}; kept in {aside}, running it again"})
        return None
    on_event({"event": "failed" if hopeless else "skipped", "run": folder.id, "status": status})
    return status


class _machine_settings:
    """Deterministic kernels while a run is on; the caller's choice afterwards."""

    def __enter__(self) -> None:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self._before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
        torch.use_deterministic_algorithms(True, warn_only=True)

    def __exit__(self, *_: object) -> None:
        torch.use_deterministic_algorithms(self._before[0])
        torch.set_num_threads(self._before[1])


class _Execution:
    def __init__(
        self,
        spec: RunSpec,
        store: Store,
        folder: RunFolder,
        conditions: Conditions,
        on_event: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self.spec, self.store, self.folder, self.path = spec, store, folder, folder.path
        self.conditions, self.on_event, self.should_stop = conditions, on_event, should_stop
        self.streams = Streams.of(spec.seed)
        self.at = Progress()
        self.log: ChainWriter | None = None
        self.metrics: ChainWriter | None = None
        self.notices: list[str] = []
        self.created = time.time()
        self.last_checkpoint = self.last_status = self.last_told = time.monotonic()

    def run(self) -> dict[str, Any]:
        self._clear_temporary_files()
        self._write_spec()
        self.log = self._open_log()
        try:
            return self._train()
        except NonFinite as failure:
            error = {"kind": "non_finite", "step": failure.step, "tensor": failure.tensor, "message": str(failure)}
        except Exception as failure:
            self._log("traceback", text=traceback.format_exc())
            error = {"kind": "exception", "step": self.at.step, "message": f"{type(failure).__name__}: {failure}"}
        return self._rest("failed", error)

    def _train(self) -> dict[str, Any]:
        torch.set_num_threads(self.threads)
        self.device = resolve_device(self.conditions.device)
        job = self.spec.job()
        job.setup(self.streams, self.device)
        optimizer = make_optimizer(job.model, self.spec.training)
        metrics = self.metrics = self._restore(job, optimizer)
        self._log("resumed" if self.at.step else "started", **self._environment(), notices=self.notices)
        self._emit("started", step=self.at.step)

        def save(at: Progress) -> None:
            facts = {**asdict(at), "metrics_mark": metrics.sync(), "created": self.created}
            checkpoint.save(self.path, at.step, job.model, optimizer, facts)
            self.last_checkpoint = time.monotonic()
            self._write_status("running")

        listener = Listener(
            record=metrics.append,
            checkpoint=save,
            progress=self._progress,
            checkpoint_due=lambda: time.monotonic() - self.last_checkpoint >= self.conditions.checkpoint_seconds,
            should_stop=self.should_stop,
        )
        if self.at.step == 0:
            save(self.at)  # there is always a last good state, and a disk that cannot hold it shows at once
        try:
            done = train(job, self.spec.training, self.streams, optimizer, self.at, listener)
        except NonFinite:
            if all(parameter.isfinite().all() for parameter in job.model.parameters()):
                save(self.at)
            raise
        if not done:
            return self._rest("interrupted")
        checkpoint.save_weights(self.folder.weights, job.model)
        status = self._rest("finished")
        for old in checkpoint.found(self.path):
            old.unlink()
        return status

    def close(self) -> None:
        for file in (self.log, self.metrics):
            if file is not None:
                file.close()

    @property
    def threads(self) -> int:
        return self.first_threads or self.conditions.threads or cores()

    # --- coming back

    def _clear_temporary_files(self) -> None:
        for leftover in self.path.glob(f"{TEMPORARY}*"):
            leftover.unlink()

    def _write_spec(self) -> None:
        path = self.path / "spec.json"
        body = {"format": FORMAT, "spec": self.spec.document(), "streams": asdict(self.streams)}
        try:
            if read_sealed(path) == body:
                return
            self._notice("spec.json does not describe this run; rewritten", path)
        except FileNotFoundError:
            pass
        except Corrupt as damage:
            self._notice(f"spec.json: {damage.reason}; rewritten", path)
        write_sealed(path, body)

    def _open_log(self) -> ChainWriter:
        path = self.path / "log.jsonl"
        try:
            records, mark, _ = read_chained(path)
        except Corrupt as damage:
            self._notice(f"log.jsonl: {damage.reason}; a new one begins", path)
            records, mark = [], None
        starts = [record for record in records if record["event"] == "started"]
        self.first_threads: int | None = starts[-1]["threads"] if starts else None
        return ChainWriter(path, mark) if mark else ChainWriter(path)

    def _restore(self, job: Job, optimizer: torch.optim.Optimizer) -> ChainWriter:
        """Go back to the newest checkpoint that is whole and whose metrics are whole; else to the beginning."""
        path = self.path / "metrics.jsonl"
        self._check_old_status()
        for saved in checkpoint.found(self.path):
            try:
                tensors, facts = checkpoint.read(saved, job.model)
                size, link = facts["metrics_mark"]
                if read_chained(path, upto=size)[1] != (size, link):
                    raise Corrupt(path, "does not match the checkpoint")
            except Corrupt as damage:
                self._notice(f"{damage.path.name}: {damage.reason}; going back further", saved)
                continue
            checkpoint.restore(tensors, job.model, optimizer)
            self.at = Progress(facts["step"], facts["tokens"], facts["seconds"], facts["loss"], facts["latest"])
            self.created = facts["created"]
            return ChainWriter(path, (size, link))
        if path.exists() and path.stat().st_size:
            self._notice("metrics.jsonl: no usable checkpoint goes with it; starting over", path)
        return ChainWriter(path)

    def _check_old_status(self) -> None:
        path = self.path / "status.json"
        try:
            status = read_sealed(path)
        except FileNotFoundError:
            return
        except Corrupt as damage:
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
            "step": self.at.step,
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

    def _rest(self, state: str, error: dict[str, Any] | None = None) -> dict[str, Any]:
        """Close the files and write the last status, which pins every other file by its checksum."""
        self._log(state, step=self.at.step, **({"error": error} if error else {}))
        self.close()
        files = {
            path.name: file_digest(path)
            for path in sorted(self.path.iterdir())
            if path.name not in ("status.json", "lock")
        }
        if state == "finished":
            files = {name: value for name, value in files.items() if not checkpoint.NAME.fullmatch(name)}
        status = self._write_status(state, files=files, **({"error": error} if error else {}))
        self._emit(state, status=status)
        return status


def bytes_needed(parameters: int) -> int:
    """Upper estimate of what one run writes: checkpoints hold weights and two moments, one more during a write."""
    return 4 * parameters * 3 * (checkpoint.KEPT + 1) + 2**20


def cores() -> int:
    """The cores this process may use, which a container or a batch system may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
