"""Verify that the store holds what was written. A checksum covers every byte of every file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from whence.store import disk
from whence.store.artifacts import artifact_paths, read_artifact
from whence.store.data import DataFolder
from whence.store.disk import CorruptFileError
from whence.store.files import check_addressed, read_chained, read_sealed, stored_digest
from whence.store.lock import is_locked
from whence.store.runs import ID, STORE, RunFolder, Store, read_metrics
from whence.training import checkpoint

ADDRESSED = (".html", ".png", ".csv", ".md", ".json")
"""Suffixes of reports, whose names hold their checksum"""
JOB_FILES = ("job.json", "started.json", "end.json")
DATA = ("activations", "labelled")


def problems_of(run: RunFolder) -> list[str]:
    """The problems of one run, a line per file; empty if there are none."""
    by_file: dict[str, str] = {}
    for problem in _problems(run):
        by_file.setdefault(problem.split(":")[0], problem)
    return list(by_file.values())


def verify_store(store: Store) -> Iterator[tuple[str, list[str]]]:
    """(name, problems) for everything that is stored, as it is checked."""
    return ((what, check()) for what, check in checks(store))


def checks(store: Store) -> list[tuple[str, Callable[[], list[str]]]]:
    """(name, check) for everything that is stored. A check returns problems."""
    found: list[tuple[str, Callable[[], list[str]]]] = []
    found += [(name, partial(_run_problems, store.folder(name))) for name in store.ids()]
    pages = [page for page in disk.entries(store.reports) if page.suffix in ADDRESSED]
    found += [(f"reports/{page.name}", partial(_caught, page, check_addressed)) for page in pages]
    artifacts = reversed(artifact_paths(store))
    found += [(f"artifacts/{path.name}", partial(_caught, path, read_artifact)) for path in artifacts]
    for place in DATA:
        found += [(f"{place}/{each.name}", partial(_data_problems, each)) for each in disk.entries(store.place(place))]
    jobs = [folder for folder in disk.entries(store.place("jobs")) if ID.fullmatch(folder.name)]
    found += [(f"jobs/{folder.name}", partial(_job_problems, folder)) for folder in jobs]
    index = store.root / "index.json"
    if disk.kind_of(index):
        found.append((index.name, partial(_caught, index, lambda path: read_sealed(path, STORE))))
    return found


def _run_problems(run: RunFolder) -> list[str]:
    return [] if run.is_locked() else problems_of(run)  # the files of a running one change


def _data_problems(folder: Path) -> list[str]:
    return [] if is_locked(folder) else [f"{name}: {reason}" for name, reason in DataFolder(folder).problems()]


def _problems(run: RunFolder) -> Iterator[str]:
    path = run.path
    if not disk.is_directory(path):
        yield f"{path.name}: expected a directory, found {disk.kind_of(path)}"
        return
    digests: dict[str, str] = {}
    try:
        digests = run.written_status().files
    except FileNotFoundError:
        yield "status.json: missing"
    except OSError as error:
        yield f"status.json: {disk.reason_of(error)}"
    except CorruptFileError as damage:
        yield f"status.json: {damage.reason}"
    for name, expected in digests.items():
        yield from _caught(path / name, lambda path, expected=expected: _check_digest(path, expected))
    yield from _caught(path / "config.json", lambda path: run.config_document())
    yield from _caught(path / "metrics.jsonl", lambda path: _check_end(path, read_metrics(path)[1]))
    yield from _caught(path / "log.jsonl", lambda path: _check_end(path, read_chained(path)[2]))
    for saved in checkpoint.saved_checkpoints(path):
        yield from _caught(saved, checkpoint.check)


def _check_digest(path: Path, expected: str) -> None:
    if stored_digest(path) != expected:
        raise CorruptFileError(path, "checksum does not match")


def _check_end(path: Path, torn: bool) -> None:
    if torn:
        raise CorruptFileError(path, "the last line is incomplete (the process was killed); resuming drops it")


def _job_problems(folder: Path) -> list[str]:
    """The types of these documents are checked by the app."""
    there = [name for name in JOB_FILES if name == "job.json" or disk.kind_of(folder / name)]
    return [problem for name in there for problem in _caught(folder / name, read_sealed)]


def _caught(path: Path, check: Callable[[Path], object]) -> list[str]:
    try:
        check(path)
    except FileNotFoundError:
        return [f"{path.name}: missing"]
    except OSError as error:
        return [f"{path.name}: cannot be read ({disk.reason_of(error)})"]
    except CorruptFileError as damage:
        return [f"{damage.path.name}: {damage.reason}"]
    return []
