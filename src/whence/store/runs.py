"""Where runs live: one directory each, files are the truth.

<store>/runs/<id>/config.json          sealed   what was requested, and the seeds of its random streams
                  status.json          sealed   where it stands, its latest numbers, checksums once it rests
                  metrics.jsonl        chained  losses and evaluations: identical however often it was resumed
                  log.jsonl            chained  every start, stop and mishap, with machine, threads and versions
                  checkpoint-*.safetensors      while it runs
                  model.safetensors             when it has finished
                  lock                 empty    held by the one process that may write
<store>/damaged/                       what was found corrupt and replaced, kept for inspection
<store>/reports/                       pages, named by their checksum
<store>/jobs/                          what the app has started (whence.app.jobs)
<store>/index.json                     sealed   a cache of all statuses; delete it at will
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from whence.config import Config
from whence.errors import UserError, hint
from whence.store.files import TEMPORARY, CorruptFileError, file_digest, flat, read_chained, write_atomically
from whence.store.records import (
    EvaluationRecord,
    LossRecord,
    MetricsRecord,
    RunError,
    RunStatus,
    RunSummary,
    StoredConfig,
    parse_as,
    read_as,
    write_as,
)
from whence.training.config import AnyRun, load_run_config

ID = re.compile(r"[0-9a-f]{12}")
S = TypeVar("S", bound=RunSummary)
SPARE_BYTES = 64 * 2**20
"""Left free on the disk after everything a sweep is expected to write."""

Stamp = tuple[int, int, int]
"""Of a file: changes whenever its content does"""
NO_FILE: Stamp = (0, 0, 0)


class IndexRow(Config):
    stamp: Stamp
    run: RunSummary


class Index(Config):
    """index.json"""

    runs: dict[str, IndexRow]


class RunLockedError(Exception):
    """Another process is writing this run."""


@dataclass(frozen=True)
class RunFolder:
    """One run's directory, for reading. Only `whence.execution.execute` writes."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def config_document(self) -> dict[str, Any]:
        return read_as(StoredConfig, self.path / "config.json").config

    def config(self) -> AnyRun:
        return load_run_config(self.config_document())

    def written_status(self) -> RunStatus:
        """Its state may be `running` although its process is gone."""
        return read_as(RunStatus, self.path / "status.json")

    def status(self) -> RunStatus:
        return self.live(self.written_status())

    def live(self, status: S) -> S:
        """As written, except that a run whose process is gone reads as interrupted, never as running."""
        gone = status.state == "running" and not self.is_locked()
        return status.model_copy(update={"state": "interrupted"}) if gone else status

    def stamp(self) -> Stamp:
        """Changes whenever its status does."""
        return _stamp(self.path / "status.json")

    def metrics(self) -> list[MetricsRecord]:
        """Every record; `CorruptFileError` if any is damaged or, once the run rests, missing."""
        path = self.path / "metrics.jsonl"
        self.check_pinned(path)
        records = read_chained(path)[0]
        return [parse_as(EvaluationRecord if "metrics" in record else LossRecord, record, path) for record in records]

    def evaluations(self) -> list[EvaluationRecord]:
        return [record for record in self.metrics() if isinstance(record, EvaluationRecord)]

    def check_pinned(self, path: Path) -> None:
        """Raise `CorruptFileError` unless a file has the checksum that the run's last status states for it."""
        expected = self.written_status().files.get(path.name)
        if expected is not None and file_digest(path) != expected:
            raise CorruptFileError(path, "checksum does not match")

    @property
    def weights(self) -> Path:
        return self.path / "model.safetensors"

    def is_locked(self) -> bool:
        """Asked with a shared lock, so that many may ask at once and a store may be read-only."""
        try:
            handle = os.open(self.path / "lock", os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    @contextmanager
    def lock(self) -> Generator[None]:
        """For the one writer. The kernel releases it when the process dies, however it dies."""
        path = self.path / "lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            if not _flock(handle):
                raise RunLockedError(self.id)
            if not path.exists() or path.stat().st_ino != os.fstat(handle).st_ino:
                raise RunLockedError(self.id)  # the folder was moved away between the opening and the locking
            yield
        finally:
            os.close(handle)


class Store:
    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root or os.environ.get("WHENCE_STORE") or "whence-runs")
        self.runs, self.reports, self.damaged = self.root / "runs", self.root / "reports", self.root / "damaged"
        self.artifacts = self.root / "artifacts"
        self._index: tuple[Stamp, dict[str, IndexRow]] = (NO_FILE, {})
        """Stamp and content of the index as it was last seen: whoever asks often does not read it again."""

    def folder(self, run_id: str) -> RunFolder:
        if not ID.fullmatch(run_id):
            raise UserError(f"run: {run_id!r} is not a run id (12 hexadecimal digits)")
        return RunFolder(self.runs / run_id)

    def ids(self) -> list[str]:
        folders = os.scandir(self.runs) if self.runs.is_dir() else ()
        return sorted(folder.name for folder in folders if ID.fullmatch(folder.name) and folder.is_dir())

    def find(self, text: str) -> RunFolder:
        """A run by its id or by the beginning of it."""
        ids = self.ids()
        matches = [i for i in ids if i.startswith(text)] if text else []
        if len(matches) == 1:
            return self.folder(matches[0])
        if matches:
            raise UserError(f"run: {text!r} is ambiguous. Allowed: {', '.join(matches)}.")
        close = hint(text, ids) or f" {self.root} holds {len(ids)} runs: see 'whence runs list'."
        raise UserError(f"run: no run {text!r} in {self.root}.{close}")

    def must_exist(self) -> None:
        """For verbs that only read: a mistyped place must not look like an empty store."""
        if not self.root.is_dir():
            raise UserError(f"store: {str(self.root)!r} is not a directory. Allowed: one that holds runs.")

    def prepare(self, bytes_needed: int = 0) -> None:
        """Make sure, before any work, that the store can be written and that the disk can hold what is coming."""
        try:
            for folder in (self.runs, self.reports, self.damaged):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.root / f"{TEMPORARY}probe-{os.getpid()}"
            write_atomically(probe, b"whence")
            probe.unlink()
            for leftover in self.damaged.glob("removing-*"):
                shutil.rmtree(leftover)
            free = shutil.disk_usage(self.root).free
        except OSError as error:
            reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
            raise UserError(
                f"store: {str(self.root)!r} cannot be written ({reason}). Allowed: a directory you may write to; "
                "name one with --store or $WHENCE_STORE."
            ) from None
        if free < bytes_needed + SPARE_BYTES:
            raise UserError(
                f"store: {str(self.root)!r} has {free / 2**20:.0f} MiB free; these runs may need "
                f"{(bytes_needed + SPARE_BYTES) / 2**20:.0f} MiB. Allowed: a disk with more room (--store)."
            )

    def set_aside(self, path: Path) -> Path:
        """Move something damaged out of the way without losing it."""
        self.damaged.mkdir(parents=True, exist_ok=True)
        owner = "" if path.parent in (self.runs, self.root) else f"{path.parent.name}-"
        target = self.damaged / f"{owner}{path.name}-{time.time_ns()}"
        path.rename(target)
        return target

    def remove(self, run: RunFolder) -> None:
        """Delete a run for good. Renamed first, so that a kill in between leaves no half run."""
        with run.lock():
            doomed = self.damaged / f"removing-{run.id}-{time.time_ns()}"
            self.damaged.mkdir(parents=True, exist_ok=True)
            run.path.rename(doomed)
        shutil.rmtree(doomed)

    def summaries(self) -> list[RunSummary]:
        """One row per run, oldest first, through the index: only runs that changed since are read."""
        known = self._read_index()
        rows: dict[str, IndexRow] = {}
        for run_id in self.ids():
            stamp = _stamp(f"{self.runs}/{run_id}/status.json")  # a Path takes longer to make than to ask for
            row = known.get(run_id)
            rows[run_id] = row if row and row.stamp == stamp else IndexRow(stamp=stamp, run=self._summarise(run_id))
        if rows != known and self.root.is_dir():
            with suppress(OSError):  # a read-only store still lists, only slower
                write_as(self.root / "index.json", Index(runs=rows), durable=False)
        runs = (r.run if r.run.state != "running" else self.folder(r.run.id).live(r.run) for r in rows.values())
        return sorted(runs, key=lambda run: (run.created, run.id))

    def _read_index(self) -> dict[str, IndexRow]:
        path = self.root / "index.json"
        stamp = _stamp(path)
        if stamp != self._index[0]:
            try:
                self._index = stamp, read_as(Index, path).runs
            except (OSError, CorruptFileError):
                return {}  # it is only a cache
        return self._index[1]

    def summary(self, run_id: str) -> RunSummary:
        """Of one run. Of a run that has not begun: interrupted, and created at no time."""
        return self.folder(run_id).live(self._summarise(run_id))

    def _summarise(self, run_id: str) -> RunSummary:
        try:
            return self.folder(run_id).written_status().summary()
        except FileNotFoundError:
            return RunSummary(id=run_id, state="interrupted")
        except (OSError, CorruptFileError) as error:
            return RunSummary(id=run_id, state="corrupt", error=RunError(kind="unreadable", message=str(error)))


@contextmanager
def open_finished_run(store: Store, text: str) -> Generator[tuple[RunFolder, AnyRun]]:
    """The folder and the configuration of a finished run, found by the first digits of its id.

    Damage that is met here or while the caller reads on raises `UserError`.
    """
    folder = store.find(text)
    try:
        if folder.status().state != "finished":
            raise UserError(f"run: {folder.id} has not finished. Allowed: finished runs.")
        yield folder, folder.config()
    except (OSError, CorruptFileError) as damage:
        raise UserError(f"run: {folder.id} cannot be read: {damage}. See 'whence runs verify {folder.id}'.") from None


def load_runs(store: Store, ids: Iterable[str]) -> tuple[list[AnyRun], dict[str, Exception]]:
    """The configurations of stored runs; and why others cannot be resumed, by id."""
    runs: list[AnyRun] = []
    left_out: dict[str, Exception] = {}
    for run_id in ids:
        try:
            run = store.find(run_id).config()
            if run.id != run_id:
                raise UserError("its config describes another run, or belongs to another version of whence")
            runs.append(run)
        except (OSError, CorruptFileError, UserError) as problem:
            left_out[run_id] = problem
    return runs, left_out


def evaluation_rows(store: Store, runs: Iterable[RunSummary]) -> tuple[list[dict[str, Any]], dict[str, Exception]]:
    """A row per evaluation of these runs, for other programs; and why others are left out, by id."""
    rows: list[dict[str, Any]] = []
    left_out: dict[str, Exception] = {}
    for run in runs:
        common = {"id": run.id, "state": run.state, **run.labels, "seed": run.seed}
        try:
            evaluations = store.folder(run.id).evaluations()
        except (OSError, CorruptFileError) as damage:
            left_out[run.id] = damage
            continue
        rows += [{**common, "step": record.step, **flat(record.metrics)} for record in evaluations]
    return rows, left_out


def _flock(handle: int) -> bool:
    """Whether it could be locked within a second: a reader that only looks is gone in a moment."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


def _stamp(path: Path | str) -> Stamp:
    try:
        stat = os.stat(path)
    except OSError:
        return NO_FILE
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
