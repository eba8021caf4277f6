"""Does the store still hold what was written? Every byte of every file is covered by a checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from whence.store.artifacts import artifact_paths, read_document_of_artifact
from whence.store.files import CorruptFileError, check_addressed, file_digest, read_chained, read_sealed
from whence.store.records import StoredConfig, read_as
from whence.store.runs import RunFolder, Store
from whence.training import checkpoint
from whence.training.config import run_id


def problems_of(run: RunFolder) -> list[str]:
    """What is wrong with one run, a line per file; empty if all is well."""
    by_file: dict[str, str] = {}
    for problem in _problems(run):
        by_file.setdefault(problem.split(":")[0], problem)
    return list(by_file.values())


def verify_store(store: Store) -> Iterator[tuple[str, list[str]]]:
    """(what, problems) for every run, report and artifact, and the index, as they are checked."""
    for name in store.ids():
        folder = store.folder(name)
        yield name, [] if folder.is_locked() else problems_of(folder)  # a running one is never at rest
    if store.reports.is_dir():
        for page in sorted(path for path in store.reports.iterdir() if path.is_file()):
            yield f"reports/{page.name}", list(_caught(page, check_addressed))
    for path in reversed(artifact_paths(store)):
        yield f"artifacts/{path.name}", list(_caught(path, read_document_of_artifact))
    index = store.root / "index.json"
    if index.exists():
        yield index.name, list(_caught(index, read_sealed))


def _problems(run: RunFolder) -> Iterator[str]:
    path = run.path
    pinned: dict[str, str] = {}
    try:
        pinned = run.written_status().files
    except FileNotFoundError:
        yield "status.json: missing"
    except (OSError, CorruptFileError) as damage:
        yield f"status.json: {getattr(damage, 'reason', damage)}"
    for name, expected in pinned.items():
        if not (path / name).exists():
            yield f"{name}: missing"
        elif file_digest(path / name) != expected:
            yield f"{name}: checksum does not match"
    yield from _caught(path / "config.json", _check_identity)
    for name in ("metrics.jsonl", "log.jsonl"):
        yield from _caught(path / name, _check_chain)
    for saved in checkpoint.saved_checkpoints(path):
        yield from _caught(saved, check_addressed)
    lock = path / "lock"
    if lock.exists() and lock.stat().st_size:
        yield "lock: should be empty"


def _check_identity(path: Path) -> None:
    stored = read_as(StoredConfig, path)
    if run_id(stored.config, stored.versions) != path.parent.name:
        raise CorruptFileError(path, "describes another run than its directory's name says")


def _check_chain(path: Path) -> None:
    if read_chained(path)[2]:
        raise CorruptFileError(path, "the last line is torn (its writer was killed); dropped on resume")


def _caught(path: Path, check: Callable[[Path], object]) -> Iterator[str]:
    try:
        check(path)
    except FileNotFoundError:
        yield f"{path.name}: missing"
    except OSError as error:
        yield f"{path.name}: cannot be read ({error.strerror})"
    except CorruptFileError as damage:
        yield f"{damage.path.name}: {damage.reason}"
