"""The store of runs: one directory per run. Files are authoritative; the index is a cache.

<store>/runs/<id>/config.json          sealed   what was requested, and the seeds of its random streams
                  status.json          sealed   state, latest metrics; checksums of the other files once it stops
                  metrics.jsonl        chained  losses and evaluations: identical however often it was resumed
                  log.jsonl            chained  every start, stop and failure, with machine, threads and versions
                  checkpoint-*.safetensors      while it runs
                  model.safetensors             when it has finished
<store>/damaged/                       corrupt files, moved here for inspection
<store>/reports/                       pages, named by their checksum
<store>/artifacts/                     measurements made without training (whence.store.artifacts)
<store>/activations/, labelled/        activations of models (whence.store.data)
<store>/jobs/                          jobs that the app has started (whence.app.jobs)
<store>/index.json                     sealed   a cache of all statuses, which may be deleted

The directory of a run is locked by the process that writes it (whence.store.lock).
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from whence.config import Config
from whence.errors import UserError, hint
from whence.formatting import counted
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import flat, read_chained, read_sealed, stored_digest, write_sealed
from whence.store.lock import Lock, is_locked, lock_folder
from whence.store.records import (
    RUN_ID,
    EvaluationRecord,
    LossRecord,
    MetricsRecord,
    RunError,
    RunStatus,
    RunSummary,
    StoredConfig,
    parse_as,
    read_as,
)
from whence.training.config import AnyRun, load_run_config

ID = re.compile(RUN_ID)
S = TypeVar("S", bound=RunSummary)
SPARE_BYTES = 64 * 2**20
"""Left free on the disk beside what a sweep is expected to write"""

Stamp = tuple[int, int, int]
"""Of a file; changes whenever its content does"""
NO_FILE: Stamp = (0, 0, 0)
STORE = ""
"""The index belongs to the store, whatever its folder is called"""
REMOVING = "removing-"
"""Prefix of directories that are being deleted"""


class IndexRow(Config):
    stamp: Stamp
    run: RunSummary


class Index(Config):
    """index.json"""

    runs: dict[str, IndexRow]


@dataclass(frozen=True)
class RunFolder:
    """One run's directory, for reading. Only `whence.execution.execute` writes."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def config_document(self) -> dict[str, Any]:
        path = self.path / "config.json"
        stored = read_as(StoredConfig, path)
        if stored.run_id != self.id:
            raise CorruptFileError(path, "describes another run than the name of its directory")
        return stored.config

    def config(self) -> AnyRun:
        return load_run_config(self.config_document())

    def written_status(self) -> RunStatus:
        """The stored status. Its state may be `running` although its process has ended."""
        path = self.path / "status.json"
        status = read_as(RunStatus, path)
        if status.id != self.id:
            raise CorruptFileError(path, f"is the status of {status.id}")
        return status

    def status(self) -> RunStatus:
        return self.live(self.written_status())

    def live(self, status: S) -> S:
        """The status, with `interrupted` in place of `running` if the process of the run has ended."""
        gone = status.state == "running" and not self.is_locked()
        return status.model_copy(update={"state": "interrupted"}) if gone else status

    def stamp(self) -> Stamp:
        """A value that changes whenever the status does."""
        return _stamp(self.path / "status.json")

    def metrics(self) -> list[MetricsRecord]:
        """All records; `CorruptFileError` if any is damaged or, once the run has stopped, missing."""
        path = self.path / "metrics.jsonl"
        self.check_digest(path)
        return read_metrics(path)[0]

    def evaluations(self) -> list[EvaluationRecord]:
        return [record for record in self.metrics() if isinstance(record, EvaluationRecord)]

    def check_digest(self, path: Path) -> None:
        """Raise `CorruptFileError` unless a file has the checksum in the last status of the run."""
        expected = self.written_status().files.get(path.name)
        if expected is not None and stored_digest(path) != expected:
            raise CorruptFileError(path, "checksum does not match")

    @property
    def weights(self) -> Path:
        return self.path / "model.safetensors"

    def is_locked(self) -> bool:
        return is_locked(self.path)

    def lock(self) -> AbstractContextManager[Lock]:
        """Lock the run for writing; `LockedError` if another process has locked it."""
        return lock_folder(self.path)


class Store:
    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root or os.environ.get("WHENCE_STORE") or "whence-runs")
        self._index: tuple[Stamp, dict[str, IndexRow]] = (NO_FILE, {})
        """Stamp and content of the index when it was last read, so that it is read again only after a change"""

    @property
    def runs(self) -> Path:
        return self.place("runs")

    @property
    def reports(self) -> Path:
        return self.place("reports")

    @property
    def artifacts(self) -> Path:
        return self.place("artifacts")

    @property
    def damaged(self) -> Path:
        return self.place("damaged")

    def place(self, name: str) -> Path:
        """A directory of the store, which may be missing. A link is refused: it may point to files of the user."""
        path = self.root / name
        if (kind := disk.kind_of(path)) not in ("", "a directory"):
            raise UserError(f"store: {str(path)!r} is {kind}, not a directory. Remove it, or pass another --store.")
        return path

    def folder(self, run_id: str) -> RunFolder:
        if not ID.fullmatch(run_id):
            raise UserError(f"run: expected a run id of 12 hexadecimal digits, got {run_id!r}.")
        return RunFolder(self.runs / run_id)

    def ids(self) -> list[str]:
        """Names of entries that have the form of a run id."""
        return sorted(name for name in disk.names(self.runs) if ID.fullmatch(name))

    def find(self, text: str) -> RunFolder:
        """A run by its id or the first digits of it."""
        ids = self.ids()
        matches = [i for i in ids if i.startswith(text)] if text else []
        if len(matches) == 1:
            return self.folder(matches[0])
        if matches:
            raise UserError(f"run: {text!r} is ambiguous: {', '.join(matches)}. Pass more digits.")
        close = hint(text, ids) or f" {counted(len(ids), 'run')} stored there: see 'whence runs list'."
        raise UserError(f"run: no run {text!r} in {self.root}.{close}")

    def must_exist(self) -> None:
        """For verbs that only read: a misspelt --store must not look like an empty store."""
        if not self.root.is_dir():
            raise UserError(f"store: {str(self.root)!r} is not a directory. Pass the directory of a store.")

    def prepare(self, bytes_needed: int = 0) -> None:
        """Raise `UserError` unless the store can be written and the disk has room for so many bytes."""
        try:
            for folder in (self.runs, self.reports, self.damaged):
                disk.make_directory(folder)
            probe = self.runs / f"{disk.TEMPORARY}probe-{os.getpid()}"
            disk.write_atomically(probe, b"whence")
            disk.remove(probe)
            for leftover in disk.entries(self.damaged):
                if leftover.name.startswith(REMOVING):
                    disk.remove_tree(leftover)
            free = shutil.disk_usage(self.root).free
        except (OSError, CorruptFileError) as error:
            reason = disk.reason_of(error) if isinstance(error, OSError) else error
            raise UserError(
                f"store: {str(self.root)!r} cannot be written ({reason}). "
                "Pass a writable directory with --store or $WHENCE_STORE."
            ) from None
        if free < bytes_needed + SPARE_BYTES:
            raise UserError(
                f"store: {str(self.root)!r} has {free / 2**20:.0f} MiB free; these runs may need "
                f"{(bytes_needed + SPARE_BYTES) / 2**20:.0f} MiB. "
                "Free some space, or pass a --store on another disk."
            )

    def set_aside(self, path: Path) -> Path:
        """Move a damaged entry to `damaged/`; return its new path."""
        disk.make_directory(self.damaged)
        owner = "" if path.parent in (self.runs, self.root) else f"{path.parent.name}-"
        target = self.damaged / f"{owner}{path.name}-{time.time_ns()}"
        disk.move(path, target)
        return target

    def make_room(self, path: Path) -> None:
        """Set aside a directory at the path of a file, since a file cannot replace it."""
        if disk.is_directory(path):
            self.set_aside(path)

    def remove(self, run: RunFolder) -> None:
        """Delete a run. It is renamed first, so that a kill leaves no incomplete run."""
        disk.make_directory(self.damaged)
        doomed = self.damaged / f"{REMOVING}{run.id}-{time.time_ns()}"
        with run.lock() if disk.is_directory(run.path) else nullcontext():
            disk.move(run.path, doomed)
        disk.remove_tree(doomed)

    def summaries(self) -> list[RunSummary]:
        """One row per run, oldest first, through the index: only runs that changed since are read."""
        known, runs = self._read_index(), self.runs
        rows: dict[str, IndexRow] = {}
        for run_id in self.ids():
            stamp = _stamp(f"{runs}/{run_id}/status.json")  # a Path takes longer to make than to ask for
            row = known.get(run_id)
            usable = row is not None and row.stamp == stamp != NO_FILE and row.run.id == run_id
            rows[run_id] = row if row and usable else IndexRow(stamp=stamp, run=self._summarise(run_id))
        if rows != known and self.root.is_dir():
            with suppress(OSError):  # a read-only store still lists, only slower
                body = Index(runs=rows).model_dump(mode="json")
                write_sealed(self.root / "index.json", body, owner=STORE, durable=False)
        live = (r.run if r.run.state != "running" else self.folder(r.run.id).live(r.run) for r in rows.values())
        return sorted(live, key=lambda run: (run.created, run.id))

    def _read_index(self) -> dict[str, IndexRow]:
        """The rows of the index; none if it is damaged, since it is a cache."""
        path = self.root / "index.json"
        stamp = _stamp(path)
        if stamp != self._index[0]:
            try:
                self._index = stamp, parse_as(Index, read_sealed(path, STORE), path).runs
            except FileNotFoundError:
                return {}
            except (OSError, CorruptFileError):
                with suppress(OSError):
                    self.make_room(path)
                return {}
        return self._index[1]

    def summary(self, run_id: str) -> RunSummary:
        """The row of one run. A run that has not started is interrupted and has no time of creation."""
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

    Damage found here or in the body of the `with` statement raises `UserError`.
    """
    folder = store.find(text)
    try:
        if folder.status().state != "finished":
            raise UserError(f"run: {folder.id} is not finished. Resume it with 'whence runs resume {folder.id}'.")
        yield folder, folder.config()
    except (OSError, CorruptFileError) as damage:
        raise UserError(f"run: {folder.id} cannot be read: {damage}. See 'whence runs verify {folder.id}'.") from None


def load_runs(store: Store, ids: Iterable[str]) -> tuple[list[AnyRun], dict[str, Exception]]:
    """The configurations of stored runs, and the errors of those that cannot be loaded, by id."""
    runs: list[AnyRun] = []
    left_out: dict[str, Exception] = {}
    for run_id in ids:
        try:
            run = store.find(run_id).config()
            if run.id != run_id:
                raise UserError("its configuration describes another run, or belongs to another version of whence")
            runs.append(run)
        except (OSError, CorruptFileError, UserError) as problem:
            left_out[run_id] = problem
    return runs, left_out


def evaluation_rows(store: Store, runs: Iterable[RunSummary]) -> tuple[list[dict[str, Any]], dict[str, Exception]]:
    """A row per evaluation of these runs, and the errors of runs that cannot be read, by id."""
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


def read_metrics(path: Path) -> tuple[list[MetricsRecord], bool]:
    """The records, and whether an incomplete last line follows."""
    records, _, torn = read_chained(path)
    return [parse_as(_record_class(record), record, path) for record in records], torn


def _record_class(record: Any) -> type[MetricsRecord]:
    return EvaluationRecord if isinstance(record, dict) and "metrics" in record else LossRecord


def _stamp(path: Path | str) -> Stamp:
    try:
        stat = os.lstat(path)
    except OSError:
        return NO_FILE
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
