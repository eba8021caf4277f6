"""A store that was tampered with: nothing outside is touched, and no state of another run is continued."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TINY, merged
from tests.execution.test_kill import EVERY_STEP, resting, results
from whence.arena.config import ArenaConfig
from whence.arena.run import ArenaRun
from whence.cli.main import run
from whence.errors import UserError
from whence.execution.events import Event
from whence.execution.execute import execute
from whence.experiments.saved import read_config, save_config
from whence.report.shell import write
from whence.store import disk
from whence.store.artifacts import ArtifactKind
from whence.store.lock import LockedError, LockLostError, lock_folder
from whence.store.runs import RunFolder, Store
from whence.store.verify import problems_of, verify_store

__all__ = ["resting"]
FILES = ("config.json", "status.json", "metrics.jsonl", "log.jsonl", "model.safetensors")


def copy_of(store: Store, place: Path) -> Store:
    shutil.copytree(store.root, place)
    return Store(place)


def finished(spec: ArenaRun, store: Store) -> list[str]:
    """Run it to its end; what was reported on the way."""
    events: list[Event] = []
    assert execute(spec, store, EVERY_STEP, events.append).state == "finished"
    return [event.message for event in events if event.kind == "notice"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[ArenaRun], Store, Store]:
    """Two seeds, stopped in the middle; and the same undisturbed."""
    specs = [ArenaRun.read(merged(TINY, {"seed": seed})) for seed in (1, 2)]
    stopped, straight = Store(tmp_path_factory.mktemp("stopped")), Store(tmp_path_factory.mktemp("straight"))
    for spec in specs:
        seen: list[int] = []
        execute(spec, stopped, EVERY_STEP, should_stop=lambda seen=seen: seen.append(0) or len(seen) > 20)
        execute(spec, straight, EVERY_STEP)
    return specs, stopped, straight


def swap_folders(one: Path, two: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def copy_state(one: Path, two: Path) -> None:
    """Everything but the configuration."""
    for path in one.iterdir():
        path.unlink() if path.name != "config.json" else None
    for path in two.iterdir():
        shutil.copy(path, one) if path.name != "config.json" else None


def copy_state_and_rewrite_nothing_else(one: Path, two: Path) -> None:
    for path in [*one.glob("checkpoint-*"), one / "metrics.jsonl"]:
        path.unlink()
    for path in [*two.glob("checkpoint-*"), two / "metrics.jsonl"]:
        shutil.copy(path, one)


@pytest.mark.parametrize("exchange", [swap_folders, copy_state, copy_state_and_rewrite_nothing_else])
def test_the_state_of_another_run_is_not_continued(
    exchange: Callable[[Path, Path], None], two: tuple[list[ArenaRun], Store, Store], tmp_path: Path
) -> None:
    specs, stopped, straight = two
    store = copy_of(stopped, tmp_path / "store")
    one, other = (store.folder(spec.id) for spec in specs)
    exchange(one.path, other.path)
    assert problems_of(one)
    for spec in specs:
        noticed = finished(spec, store)
        assert noticed or spec is not specs[0]
        assert results(store, spec.id) == results(straight, spec.id)
    assert all(not problems for _, problems in verify_store(store))


def test_metrics_that_do_not_reach_the_checkpoints_are_reported(
    two: tuple[list[ArenaRun], Store, Store], tmp_path: Path
) -> None:
    specs, stopped, straight = two
    store = copy_of(stopped, tmp_path / "store")
    folder = store.folder(specs[0].id)
    assert problems_of(folder) == []
    lines = (folder.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for left in (b"", b"".join(lines[:-1])):  # whole lines: each by itself is a valid file
        (folder.path / "metrics.jsonl").write_bytes(left)
        assert [problem.split(":")[0] for problem in problems_of(folder)] == ["metrics.jsonl"]
    finished(specs[0], store)
    assert results(store, specs[0].id) == results(straight, specs[0].id)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # addresses are short
        server.bind(path.name)
        os.chdir(here)


OBSTACLES: dict[str, Callable[[Path], None]] = {
    "pipe": fifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "directory": lambda path: (path / "inside").mkdir(parents=True),
    "socket": listening,
}


@pytest.mark.parametrize("which", ["finished", "interrupted"])
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_is_no_file_neither_hangs_nor_sticks(
    obstacle: str, which: str, resting: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = resting["spec"]
    for number, name in enumerate([*FILES, "checkpoint", "index.json"]):
        store = copy_of(resting[which], tmp_path / str(number))
        folder = store.folder(spec.id).path
        path = store.root / name if name == "index.json" else folder / name
        if name == "checkpoint":
            path = max(folder.glob("checkpoint-*"), default=folder / f"checkpoint-{60:09d}-{'0' * 16}.safetensors")
        path.unlink(missing_ok=True)
        OBSTACLES[obstacle](path)
        assert run(["runs", "list", "--store", str(store.root)]) == 0
        assert run(["runs", "show", spec.id, "--store", str(store.root)]) in (0, 2)
        assert run(["runs", "verify", "--store", str(store.root)]) in (0, 1)
        finished(spec, store)
        assert results(store, spec.id) == results(resting["finished"], spec.id), name
        store.summaries()
        assert [found for _, found in verify_store(store) if found] == [], name
    assert "Traceback" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_is_no_run_is_listed_and_set_aside(obstacle: str, resting: dict[str, Any], tmp_path: Path) -> None:
    spec, store = resting["spec"], Store(tmp_path / "store")
    store.prepare()
    path = store.runs / spec.id
    if obstacle == "directory":
        path.mkdir()
    else:
        OBSTACLES[obstacle](path)
        assert [row.state for row in store.summaries()] == ["corrupt"]
        assert any(found for _, found in verify_store(store))
    finished(spec, store)
    assert results(store, spec.id) == results(resting["finished"], spec.id)


def test_links_out_of_the_store_change_nothing_there(resting: dict[str, Any], tmp_path: Path) -> None:
    spec = resting["spec"]
    outside = tmp_path / "mine"
    shutil.copytree(resting["interrupted"].folder(spec.id).path, outside / spec.id)
    (outside / "removing-me").mkdir()
    (outside / "removing-me" / "letter.txt").write_text("mine")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    for number, place in enumerate([f"runs/{spec.id}", "runs", "damaged", "reports", "artifacts", "jobs"]):
        store = copy_of(resting["interrupted"], tmp_path / str(number))
        path = store.root / place
        if path.exists():
            shutil.rmtree(path)
        path.symlink_to(outside / spec.id if "/" in place else outside)
        command = ["runs", "repair", "--yes", "--retrain", "--store", str(store.root)]
        assert run(command) in (0, 1, 2)
        with suppress(UserError):
            store.prepare()
            finished(spec, store)
        for words in (f"rm {spec.id} --yes", "gc --yes", "list", "verify"):
            assert run(["runs", *words.split(), "--store", str(store.root)]) in (0, 1, 2)
        assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before, place


def test_a_hard_link_is_not_written_through(resting: dict[str, Any], tmp_path: Path) -> None:
    spec, store = resting["spec"], copy_of(resting["interrupted"], tmp_path / "store")
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    for name in ("metrics.jsonl", "log.jsonl", "status.json"):
        (store.folder(spec.id).path / name).unlink()
        os.link(precious, store.folder(spec.id).path / name)
    finished(spec, store)
    assert precious.read_text() == "mine"
    assert results(store, spec.id) == results(resting["finished"], spec.id)


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_writer_whose_folder_is_gone_stops(how: str, resting: dict[str, Any], tmp_path: Path) -> None:
    spec, store = resting["spec"], Store(tmp_path / "store")
    folder = store.folder(spec.id).path

    def take_away(event: Event) -> None:
        if event.kind == "progress" and event.step > 5 and folder.exists() and not (tmp_path / "away").exists():
            folder.rename(tmp_path / "away")
            if how == "deleted":
                shutil.rmtree(tmp_path / "away")
            if how == "replaced":
                finished(spec, store)

    with pytest.raises(LockLostError):
        execute(spec, store, EVERY_STEP, take_away)
    if how == "replaced":
        assert problems_of(store.folder(spec.id)) == []
    finished(spec, store)
    assert results(store, spec.id) == results(resting["finished"], spec.id)


def test_deleting_files_in_mid_run_admits_nobody_else(resting: dict[str, Any], tmp_path: Path) -> None:
    spec, store = resting["spec"], Store(tmp_path / "store")
    refused: list[bool] = []

    def delete(event: Event) -> None:
        if event.kind == "progress":
            (store.folder(spec.id).path / "lock").unlink(missing_ok=True)
            with pytest.raises(LockedError):
                execute(spec, store, EVERY_STEP)
            refused.append(True)

    assert execute(spec, store, EVERY_STEP, delete).state == "finished"
    assert refused
    assert results(store, spec.id) == results(resting["finished"], spec.id)


def test_where_folders_cannot_be_locked_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network file systems. The writer notices when its lock file is deleted."""
    import fcntl

    real = fcntl.flock

    def files_only(handle: int, operation: int) -> None:
        if disk.kind_of(f"/proc/self/fd/{handle}") and os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(9, "Bad file descriptor")
        real(handle, operation)

    monkeypatch.setattr(fcntl, "flock", files_only)
    with lock_folder(tmp_path) as lock:
        assert RunFolder(tmp_path).is_locked()
        with pytest.raises(LockedError), lock_folder(tmp_path):
            pass
        lock.check()
        (tmp_path / "lock").unlink()
        with pytest.raises(LockLostError):
            lock.check()
    assert not RunFolder(tmp_path).is_locked()


HOSTILE: dict[str, Any] = {
    "a list": [],
    "no fields": {},
    "far future": {"created": 1e300},
    "negative": {"step": -5},
    "huge": {"steps": 10**30},
    "another state": {"state": "sleeping"},
    "another run": {"id": "0" * 12},
    "a file of any name": {"files": {"../../x": "0" * 64}},
    "no metrics": {"latest": {"headline": {"ID": "high"}}},
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_sealed_status_of_any_content(
    hostile: str, resting: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whence.store.files import read_sealed, write_sealed

    spec, store = resting["spec"], copy_of(resting["finished"], tmp_path / "store")
    path, change = store.folder(spec.id).path / "status.json", HOSTILE[hostile]
    write_sealed(path, {**read_sealed(path), **change} if change else change)
    for arguments in (["list"], ["show", spec.id], ["verify"], ["export"]):
        assert run(["runs", *arguments, "--store", str(store.root)]) in (0, 1, 2)
    assert "Traceback" not in "".join(capsys.readouterr())
    if hostile != "no metrics":  # which only the instrument can know
        finished(spec, store)
        assert results(store, spec.id) == results(resting["finished"], spec.id)


def test_a_deeply_nested_document_is_damaged(resting: dict[str, Any], tmp_path: Path) -> None:
    from whence.store.files import write_sealed

    spec, store = resting["spec"], copy_of(resting["finished"], tmp_path / "store")
    nested: Any = {}
    for _ in range(500):
        nested = {"a": nested}
    for name in ("status.json", "config.json"):
        write_sealed(store.folder(spec.id).path / name, nested)
    assert [row.state for row in store.summaries()] == ["corrupt"]
    finished(spec, store)


def test_a_report_on_a_full_disk_does_not_hide_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.conftest import TINY_FLAGS

    command = ["arena", "compare", "--tasks", TINY["task"], "--encodings", "rope", "none", "--seeds", "1"]
    command += ["--steps", "3", *TINY_FLAGS, "--store", str(tmp_path / "store")]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("whence.experiments.comparison.write", full)
    assert run(command) == 1
    captured = capsys.readouterr()
    assert "rope" in captured.out
    assert "The report was not written: the disk is full" in captured.err
    monkeypatch.undo()
    assert run(command) == 0


@pytest.mark.parametrize("name", ["model", "checkpoint", "report"])
def test_a_file_of_a_terabyte_of_nothing_is_not_read(
    name: str, resting: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = resting["spec"]
    store = copy_of(resting["finished" if name == "model" else "interrupted"], tmp_path / "store")
    store.prepare()
    if name == "report":
        path = write("page", b"x", store.reports)
    else:
        path = max(store.folder(spec.id).path.glob(f"{name}*.safetensors"))
    os.truncate(path, 2**40)
    started = time.process_time()
    assert run(["runs", "verify", "--store", str(store.root)]) == 1
    assert path.name in capsys.readouterr().out
    if name != "report":
        finished(spec, store)
        assert results(store, spec.id) == results(resting["finished"], spec.id)
    assert time.process_time() - started < 5


def test_a_directory_in_place_of_a_saved_configuration_is_set_aside(store: Store) -> None:
    config = ArenaConfig.read({})
    path = save_config("arena", config, store)
    path.unlink()
    path.mkdir()
    assert read_config(save_config("arena", config, store), ArenaConfig) == config
    assert next(kept.name for kept in store.damaged.iterdir()).startswith("reports-arena-")


@pytest.mark.usefixtures("in_process")
def test_a_measurement_that_cannot_be_stored_is_a_failure(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.conftest import TINY_FLAGS

    command = ["arena", "compare", "--tasks", TINY["task"], "--encodings", "rope", "none", "--seeds", "1"]
    command += ["--steps", "3", *TINY_FLAGS, "--store", str(store.root)]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(ArtifactKind, "save", full)
        assert run(command) == 1
    assert "Measuring attention of rope: not possible, the disk is full" in capsys.readouterr().err
    assert run(command) == 0
