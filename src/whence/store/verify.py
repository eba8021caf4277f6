"""Does the store still hold what was written? Every byte of every file is covered by a checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from whence.errors import UserError
from whence.store import disk
from whence.store.artifacts import artifact_paths, read_artifact
from whence.store.data import DataFolder
from whence.store.disk import CorruptFileError
from whence.store.files import check_addressed, read_chained, read_sealed, stored_digest
from whence.store.runs import ID, STORE, RunFolder, Store
from whence.training import checkpoint

ADDRESSED = (".html", ".png", ".csv", ".md", ".json")
"""Files among the reports, which hold their checksum in their names"""
JOB_FILES = ("job.json", "started.json", "end.json")
DATA = ("activations", "labelled")
PLACES = ("runs", "reports", "artifacts", *DATA, "jobs", "damaged")


def problems_of(run: RunFolder) -> list[str]:
    """What is wrong with one run, a line per file; empty if all is well."""
    by_file: dict[str, str] = {}
    for problem in _problems(run):
        by_file.setdefault(problem.split(":")[0], problem)
    return list(by_file.values())


def verify_store(store: Store) -> Iterator[tuple[str, list[str]]]:
    """(what, problems) for everything that is stored, as it is checked."""
    for place in PLACES:
        try:
            store.place(place)
        except UserError as problem:
            yield place, [str(problem)]
            return
    for name in store.ids():
        folder = store.folder(name)
        yield name, [] if folder.is_locked() else problems_of(folder)  # a running one is never at rest
    for page in disk.entries(store.reports):
        if page.suffix in ADDRESSED:
            yield f"reports/{page.name}", list(_caught(page, check_addressed))
    for path in reversed(artifact_paths(store)):
        yield f"artifacts/{path.name}", list(_caught(path, read_artifact))
    for place in DATA:
        for folder in disk.entries(store.place(place)):
            yield f"{place}/{folder.name}", [f"{name}: {reason}" for name, reason in DataFolder(folder).problems()]
    for folder in disk.entries(store.place("jobs")):
        if ID.fullmatch(folder.name):
            yield f"jobs/{folder.name}", list(_job_problems(folder))
    index = store.root / "index.json"
    if disk.kind_of(index):
        yield index.name, list(_caught(index, lambda path: read_sealed(path, STORE)))


def _problems(run: RunFolder) -> Iterator[str]:
    path = run.path
    if not disk.is_directory(path):
        yield f"{path.name}: {disk.kind_of(path)} instead of a folder"
        return
    pinned: dict[str, str] = {}
    try:
        pinned = run.written_status().files
    except FileNotFoundError:
        yield "status.json: missing"
    except OSError as error:
        yield f"status.json: {disk.reason_of(error)}"
    except CorruptFileError as damage:
        yield f"status.json: {damage.reason}"
    for name, expected in pinned.items():
        yield from _caught(path / name, lambda path, expected=expected: _check_pinned(path, expected))
    yield from _caught(path / "config.json", lambda path: run.config_document())
    for name in ("metrics.jsonl", "log.jsonl"):
        yield from _caught(path / name, _check_chain)
    for saved in checkpoint.saved_checkpoints(path):
        yield from _caught(saved, check_addressed)


def _check_pinned(path: Path, expected: str) -> None:
    if stored_digest(path) != expected:
        raise CorruptFileError(path, "checksum does not match")


def _check_chain(path: Path) -> None:
    if read_chained(path)[2]:
        raise CorruptFileError(path, "the last line is torn (its writer was killed); dropped on resume")


def _job_problems(folder: Path) -> Iterator[str]:
    """The types of these documents belong to the app, which refuses others."""
    for name in JOB_FILES:
        if name == "job.json" or disk.kind_of(folder / name):
            yield from _caught(folder / name, read_sealed)


def _caught(path: Path, check: Callable[[Path], object]) -> Iterator[str]:
    try:
        check(path)
    except FileNotFoundError:
        yield f"{path.name}: missing"
    except OSError as error:
        yield f"{path.name}: cannot be read ({disk.reason_of(error)})"
    except CorruptFileError as damage:
        yield f"{damage.path.name}: {damage.reason}"
