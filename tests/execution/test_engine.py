"""The local engine with its real worker processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TINY_FLAGS
from whence.execution.engines.local import run_all, share
from whence.execution.events import Event
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.store.lock import LockedError
from whence.store.runs import Store
from whence.store.verify import verify_store


def test_one_failing_run_does_not_stop_the_rest(tiny: Callable[..., Any], tmp_path: Path) -> None:
    specs = [
        tiny(),
        tiny(training={"lr": 1e38, "schedule": "constant", "warmup": 0, "clip": 1e30}),
        tiny(seed=1),
        tiny(seed=2),
    ]
    events: list[Event] = []
    ends = run_all(specs, Store(tmp_path), ExecutionOptions(workers=2, threads=1), events.append)
    assert [ends[spec.id] for spec in specs] == ["finished", "failed", "finished", "finished"]
    assert {e.kind for e in events} >= {"started", "progress", "finished", "failed"}
    # in-process and in a worker, alone and in company: the same numbers
    alone = Store(tmp_path / "alone")
    execute(specs[2], alone, ExecutionOptions(threads=1))
    metrics = [s.folder(specs[2].id).path.joinpath("metrics.jsonl").read_bytes() for s in (alone, Store(tmp_path))]
    assert metrics[0] == metrics[1]
    again = run_all(specs, Store(tmp_path), ExecutionOptions(workers=1))
    assert [again[spec.id] for spec in specs] == ["skipped", "failed", "skipped", "skipped"]


def test_a_worker_that_dies_takes_only_its_run_with_it(tiny: Callable[..., Any], tmp_path: Path) -> None:
    specs = [tiny(training={"steps": 100_000}), tiny(seed=1), tiny(seed=2)]
    store = Store(tmp_path)
    killed: list[int] = []

    def shoot(event: Event) -> None:
        if event.kind == "progress" and event.run == specs[0].id and not killed:
            [pid] = workers_of(os.getpid(), specs[0].id, store)
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    ends = run_all(specs, store, ExecutionOptions(workers=1, threads=1), shoot)
    assert killed
    assert ends == {specs[0].id: "crashed", specs[1].id: "finished", specs[2].id: "finished"}
    assert store.folder(specs[0].id).status().state == "interrupted"


def workers_of(parent: int, run_id: str, store: Store) -> list[int]:
    """Direct children of this process that hold the run's folder open."""
    lock = str(store.folder(run_id).path.resolve())
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_child = entry.name.isdigit() and f"PPid:\t{parent}\n" in (entry / "status").read_text()
            if is_child and any(os.readlink(fd) == lock for fd in (entry / "fd").iterdir()):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_two_processes_never_write_one_run(tiny: Callable[..., Any], tmp_path: Path) -> None:
    spec, store = tiny(), Store(tmp_path)
    store.folder(spec.id).path.mkdir(parents=True)
    with store.folder(spec.id).lock():
        with pytest.raises(LockedError):
            execute(spec, store)
        assert run_all([spec], store) == {spec.id: "busy"}
    assert not store.folder(spec.id).is_locked()


def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "whence",
        "arena",
        "compare",
        "--tasks",
        "k_back_recall:k=1,symbols=4",
        "--encodings",
        "rope",
        "none",
    ]
    command += [*TINY_FLAGS, "--seeds", "2", "--steps", "1500", "--checkpoint-interval", "1000", "--workers", "2"]
    interrupted = subprocess.Popen(
        [*command, "--store", str(tmp_path / "a")], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    while not list((tmp_path / "a").glob("runs/*/checkpoint-*")):
        assert interrupted.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    interrupted.send_signal(signal.SIGINT)
    _, stderr = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, stderr
    assert "To resume:" in stderr
    assert "Traceback" not in stderr
    states = [row.state for row in Store(tmp_path / "a").summaries()]
    assert "interrupted" in states
    assert "running" not in states
    steps = [row.step for row in Store(tmp_path / "a").summaries()]
    assert max(steps) > 0, "the stop did not write a checkpoint"
    assert all(not found for _, found in verify_store(Store(tmp_path / "a")))

    documents = []
    for store in ("a", "b"):
        done = subprocess.run(
            [*command, "--json", "--store", str(tmp_path / store)], capture_output=True, text=True, check=True
        )
        documents.append(json.loads(done.stdout)["tables"][0]["rows"])
    for row in (*documents[0], *documents[1]):
        del row["seconds"], row["cells"]["cost"]
    assert documents[0] == documents[1]
    runs = sorted(p.name for p in (tmp_path / "a" / "runs").iterdir())
    for run in runs:
        a, b = ((tmp_path / s / "runs" / run / "metrics.jsonl").read_bytes() for s in ("a", "b"))
        assert a == b


def test_workers_leave_when_their_parent_is_killed(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "whence",
        "arena",
        "train",
        *TINY_FLAGS,
        "--steps",
        "1000000",
        "--store",
        str(tmp_path),
    ]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("runs/*/checkpoint-*")):
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    [row] = Store(tmp_path).summaries()
    deadline = time.monotonic() + 30
    while Store(tmp_path).folder(row.id).is_locked():
        assert time.monotonic() < deadline, "the worker goes on without its parent"
        time.sleep(0.05)
    assert Store(tmp_path).folder(row.id).status().state == "interrupted"


def test_an_orphan_that_cannot_stop_is_ended(tiny: Callable[..., Any], tmp_path: Path) -> None:
    """Its parent is gone and its evaluation takes minutes: it leaves after the grace period all the same."""
    slow = tiny(lengths={"test_sequences": 100_000, "test_lengths": [64]}, training={"steps": 1, "evaluations": 1})
    code = "import whence.execution.worker as w; w.GRACE_SECONDS = 0.5; w.main()"
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert worker.stdin is not None
    task = {"config": slow.document(), "store": str(tmp_path), "options": {"threads": 1}}
    worker.stdin.write(json.dumps(task) + "\n")
    worker.stdin.flush()
    while not list(tmp_path.glob("runs/*/checkpoint-*")):
        assert worker.poll() is None
        time.sleep(0.05)
    time.sleep(2)  # the one step is over, and the evaluation of the trained model has begun
    worker.stdin.close()
    assert worker.wait(timeout=20) == 1
    assert Store(tmp_path).folder(slow.id).status().state == "interrupted"


def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.execution.engines.local.cores", lambda: 8)
    assert share(100) == (8, 1)
    assert share(3) == (3, 2)
    assert share(1) == (1, 8)
    assert share(100, workers=2) == (2, 4)
    assert share(100, workers=2, threads=1) == (2, 1)


def test_chatter_at_start_up_and_outside_signals(
    tiny: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that prints when imported cannot confuse the engine; a worker told to leave is replaced."""
    (tmp_path / "sitecustomize.py").write_text("print('hello from a chatty library')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    specs = [tiny(training={"steps": 100_000}), tiny(seed=1), tiny(seed=2)]
    store = Store(tmp_path / "store")
    told: list[int] = []

    def tell(event: Event) -> None:
        if event.kind == "progress" and event.run == specs[0].id and not told:
            told.extend(workers_of(os.getpid(), specs[0].id, store))
            os.kill(told[0], signal.SIGTERM)

    ends = run_all(specs, store, ExecutionOptions(workers=1, threads=1), tell)
    assert [ends[spec.id] for spec in specs] == ["interrupted", "finished", "finished"]
