"""Kill it, corrupt it, resume it: the metrics come out bit for bit as if nothing had happened."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whence.execution.events import Event
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.store.runs import Store
from whence.store.verify import problems_of, verify_store
from whence.training.config import load_run_config

EVERY_STEP = ExecutionOptions(threads=1, checkpoint_interval=0.0)


def train_here(document: dict[str, Any], root: str, conditions: ExecutionOptions) -> None:
    execute(load_run_config(document), Store(root), conditions)


@pytest.fixture(scope="module")
def forks() -> Any:
    """Children forked from a clean server that has imported torch: real processes that start in a moment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["whence.execution.execute", "whence.arena.run", __name__])
    return context


def results(store: Store, run_id: str) -> tuple[bytes, bytes, dict[str, Any]]:
    """All that must not depend on how often a run was interrupted: every metric, every weight, the summary."""
    folder = store.folder(run_id)
    status = folder.status()
    kept = {key: getattr(status, key) for key in ("state", "step", "tokens", "loss", "latest", "headline")}
    return (folder.path / "metrics.jsonl").read_bytes(), folder.weights.read_bytes(), kept


@pytest.mark.parametrize(
    ("model", "threads", "steps", "wanted_random", "wanted_in_write"),
    [
        ({"d_model": 64, "dropout": 0.2, "encoding": "t5", "positions": "shifted:reach=5"}, 1, 600, 14, 8),
        pytest.param({"d_model": 32, "mixer": "bimamba", "encoding": "none"}, 2, 200, 4, 2, marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_moments_and_during_writes(
    tiny: Callable[..., Any],
    tmp_path: Path,
    forks: Any,
    slow: bool,
    model: dict[str, Any],
    threads: int,
    steps: int,
    wanted_random: int,
    wanted_in_write: int,
) -> None:
    if slow:
        steps, wanted_random, wanted_in_write = 5 * steps, 4 * wanted_random, 2 * wanted_in_write
    spec = tiny(model=model, training={"steps": steps, "evaluations": 12})
    every_step = ExecutionOptions(threads=threads, checkpoint_interval=0.0)
    straight = Store(tmp_path / "straight")
    assert execute(spec, straight, ExecutionOptions(threads=threads, checkpoint_interval=1e9)).state == "finished"

    store = Store(tmp_path / "killed")
    folder = store.folder(spec.id).path
    chance = random.Random(0)
    random_kills = write_kills = debris = 0
    deadline = time.monotonic() + 300
    while random_kills < wanted_random or write_kills < wanted_in_write:
        assert time.monotonic() < deadline, f"{random_kills} random kills and {write_kills} during writes"
        child = forks.Process(target=train_here, args=(spec.document(), str(store.root), every_step))
        child.start()
        in_write = write_kills < wanted_in_write and (random_kills >= wanted_random or chance.random() < 0.4)
        before = newest_step(folder)
        while child.is_alive() and newest_step(folder) <= before:  # let every attempt make some way
            time.sleep(0.001)
        if in_write:
            while child.is_alive() and not temporary_checkpoints(folder):
                pass
        else:
            time.sleep(chance.random() * 0.05)
        assert child.is_alive(), "the run ended before enough kills: give it more steps"
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        left = temporary_checkpoints(folder)
        debris += bool(left)
        write_kills += in_write
        random_kills += not in_write
    assert debris or wanted_in_write < 8, "no kill hit a checkpoint while it was being written"
    assert store.folder(spec.id).status().state == "interrupted"

    events: list[Event] = []
    assert execute(spec, store, every_step, events.append).state == "finished"
    assert results(store, spec.id) == results(straight, spec.id)
    assert problems_of(store.folder(spec.id)) == []
    assert not [event for event in events if event.kind == "notice"]


def newest_step(folder: Path) -> int:
    steps = [int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")] if folder.exists() else []
    return max(steps, default=-1)


def temporary_checkpoints(folder: Path) -> list[Path]:
    return list(folder.glob(".tmp-checkpoint*"))


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A finished run, and the same run stopped in the middle."""
    from tests.conftest import TINY
    from whence.arena.run import ArenaRun

    spec = ArenaRun.read(TINY)
    finished, interrupted = Store(tmp_path_factory.mktemp("finished")), Store(tmp_path_factory.mktemp("interrupted"))
    execute(spec, finished, EVERY_STEP)
    seen: list[int] = []
    status = execute(spec, interrupted, EVERY_STEP, should_stop=lambda: seen.append(0) or len(seen) > 30)
    assert status.state == "interrupted"
    assert status.step == 30
    for store in (finished, interrupted):
        store.summaries()  # writes the index
        assert all(not found for _, found in verify_store(store))
    return {"spec": spec, "finished": finished, "interrupted": interrupted}


def stored_files(store: Store) -> list[Path]:
    return sorted(path for path in store.root.rglob("*") if path.is_file() and path.stat().st_size)


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << (at % 8)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("which", ["finished", "interrupted"])
def test_verify_notices_a_flipped_bit_anywhere(which: str, resting: dict[str, Any], tmp_path: Path, slow: bool) -> None:
    original: Store = resting[which]
    copy = Store(tmp_path / "store")
    shutil.copytree(original.root, copy.root)
    chance = random.Random(1)
    names = set()
    for path in stored_files(copy):
        size = path.stat().st_size
        data = path.read_bytes()
        names.add(path.name.split("-")[0])
        sample = chance.sample(range(size), min(size, 400 if slow else 25))
        for at in {0, size - 1, *sample}:
            damage(path, at)
            found = [problem for _, problems in verify_store(copy) for problem in problems]
            assert any(path.name in problem for problem in found), f"byte {at} of {path.name}"
            path.write_bytes(data)
    expected = {"finished": "model.safetensors", "interrupted": "checkpoint"}[which]
    assert names == {"config.json", "status.json", "metrics.jsonl", "log.jsonl", "index.json", expected}


@pytest.mark.parametrize("which", ["finished", "interrupted"])
def test_resume_notices_a_flipped_bit_and_still_gets_the_same_result(
    which: str, resting: dict[str, Any], tmp_path: Path
) -> None:
    original, spec = resting[which], resting["spec"]
    chance = random.Random(2)
    names = [path.name for path in stored_files(original) if path.name != "index.json"]
    for number, name in enumerate(names):
        copy = Store(tmp_path / f"{number}")
        shutil.copytree(original.root, copy.root)
        path = copy.folder(spec.id).path / name
        damage(path, chance.randrange(path.stat().st_size))
        events: list[Event] = []
        assert execute(spec, copy, EVERY_STEP, events.append).state == "finished"
        assert [event for event in events if event.kind == "notice"], f"{name}: nobody was told"
        assert results(copy, spec.id) == results(resting["finished"], spec.id), name
        assert all(not found for _, found in verify_store(copy)), name


def test_missing_files_are_noticed(resting: dict[str, Any], tmp_path: Path) -> None:
    for number, path in enumerate(stored_files(resting["finished"])):
        if path.name == "index.json":
            continue
        copy = Store(tmp_path / f"{number}")
        shutil.copytree(resting["finished"].root, copy.root)
        (copy.folder(resting["spec"].id).path / path.name).unlink()
        assert problems_of(copy.folder(resting["spec"].id))


def test_the_last_good_checkpoint_is_used(resting: dict[str, Any], tmp_path: Path) -> None:
    copy = Store(tmp_path / "store")
    shutil.copytree(resting["interrupted"].root, copy.root)
    folder = copy.folder(resting["spec"].id).path
    newest, older = sorted(folder.glob("checkpoint-*"), reverse=True)
    damage(newest, newest.stat().st_size // 2)
    events: list[Event] = []
    execute(resting["spec"], copy, EVERY_STEP, events.append)
    started = next(event for event in events if event.kind == "started")
    assert started.step == int(older.name.split("-")[1]) == 29
    assert results(copy, resting["spec"].id) == results(resting["finished"], resting["spec"].id)
    assert list(copy.damaged.iterdir()), "the damaged file was not kept"


def test_stopped_before_the_first_step(resting: dict[str, Any], tmp_path: Path) -> None:
    """A stop may come while the worker starts or evaluates at step 0, again and again."""
    store, spec = Store(tmp_path), resting["spec"]
    for _ in range(3):
        assert execute(spec, store, EVERY_STEP, should_stop=lambda: True).step == 0
    assert execute(spec, store, EVERY_STEP).state == "finished"
    assert results(store, spec.id) == results(resting["finished"], spec.id)


def test_killed_after_the_last_status(resting: dict[str, Any], tmp_path: Path) -> None:
    """Finished, but its checkpoints were not yet deleted: they go, and even a damaged one costs nothing."""
    spec, store = resting["spec"], Store(tmp_path / "store")
    shutil.copytree(resting["finished"].root, store.root)
    for path in resting["interrupted"].folder(spec.id).path.glob("checkpoint-*"):
        shutil.copy(path, store.folder(spec.id).path)
    damage(next(store.folder(spec.id).path.glob("checkpoint-*")), 100)
    events: list[Event] = []
    execute(spec, store, EVERY_STEP, events.append)
    assert [event.kind for event in events] == ["skipped"]
    assert not list(store.folder(spec.id).path.glob("checkpoint-*"))


def test_other_files_in_a_run_are_nobodys_business(resting: dict[str, Any], tmp_path: Path) -> None:
    spec, store = resting["spec"], Store(tmp_path / "store")
    shutil.copytree(resting["interrupted"].root, store.root)
    (store.folder(spec.id).path / ".DS_Store").write_text("x")
    (store.folder(spec.id).path / "notes").mkdir()
    (store.reports / "figures").mkdir(parents=True)
    for expected in ("finished", "skipped"):
        events: list[Event] = []
        execute(spec, store, EVERY_STEP, events.append)
        assert events[-1].kind == expected
    assert (store.folder(spec.id).path / "notes").exists()
    assert all(not found for _, found in verify_store(store))


def test_a_damaged_log_does_not_cost_a_finished_run(resting: dict[str, Any], tmp_path: Path) -> None:
    spec, store = resting["spec"], Store(tmp_path / "store")
    shutil.copytree(resting["finished"].root, store.root)
    damage(store.folder(spec.id).path / "log.jsonl", 40)
    events: list[Event] = []
    execute(spec, store, EVERY_STEP, events.append)
    assert [event.kind for event in events] == ["notice", "skipped"]
    assert all(not found for _, found in verify_store(store))


def test_links_in_a_foreign_store_are_not_followed(resting: dict[str, Any], tmp_path: Path) -> None:
    spec, store = resting["spec"], Store(tmp_path / "store")
    shutil.copytree(resting["interrupted"].root, store.root)
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    for name in ("metrics.jsonl", "log.jsonl"):
        target = store.folder(spec.id).path / name
        target.unlink()
        target.symlink_to(precious)
    execute(spec, store, EVERY_STEP)
    assert precious.read_text() == "mine"
    assert results(store, spec.id) == results(resting["finished"], spec.id)


def test_readers_never_keep_a_writer_out(resting: dict[str, Any], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(resting["finished"].root, store.root)
    folder = store.folder(resting["spec"].id)
    done = threading.Event()
    seen: list[bool] = []
    readers = [
        threading.Thread(target=lambda: [seen.append(folder.is_locked()) for _ in iter(done.is_set, True)])
        for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    for _ in range(300):
        with folder.lock():
            assert folder.is_locked()
    done.set()
    for reader in readers:
        reader.join()
    assert len(seen) > 100


def test_a_large_model_can_resume(resting: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit on documents is not a limit on checkpoints."""
    monkeypatch.setattr("whence.store.disk.LARGEST_DOCUMENT", 20_000)
    store = Store(tmp_path / "store")
    shutil.copytree(resting["interrupted"].root, store.root)
    events: list[Event] = []
    execute(resting["spec"], store, EVERY_STEP, events.append)
    assert next(event for event in events if event.kind == "started").step == 30
