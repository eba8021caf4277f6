"""Jobs are commands in processes of their own: they outlive whoever started them, wait for their turn, stop, go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.browse import until
from whence.errors import UserError
from whence.experiments.jobs import ALIVE, Job, job_about, jobs, submit
from whence.store.files import CorruptFileError, write_sealed
from whence.store.runs import Store

ENDLESS = {
    "task": "k_back_recall:k=1,symbols=4",
    "model": {"d_model": 16, "heads": 2, "layers": 1},
    "lengths": {"train_length": 8, "test_lengths": [16], "test_sequences": 16},
    "training": {"steps": 1_000_000, "batch_size": 8, "evaluations": 2},
}


def listing(store: Store) -> Job:
    """A command that is done in a blink."""
    job = submit(store, ["runs", "list"], title="all runs", about="a list", trains=False)
    until(lambda: job.state not in ALIVE)
    return job


def train(store: Store, seed: int) -> Job:
    return submit(store, ["train"], {**ENDLESS, "seed": seed}, title="a long one", about=f"seed {seed}")


def steps(store: Store) -> int:
    return max((run.get("step", 0) for run in store.summaries()), default=0)


def test_a_job_runs_its_command_and_says_what_came_of_it(store: Store) -> None:
    job = listing(store)
    assert job.state == "finished", job.said()
    assert job.result() == []
    assert jobs(store) == jobs(store, "runs") == [job]
    assert jobs(store, "arena") == []
    assert job_about(store, "a list") == job
    assert job_about(store, "another") is None


def test_what_a_command_refuses_is_told(store: Store) -> None:
    job = submit(store, ["runs", "resume", "beef"], title="impossible", trains=False)
    until(lambda: job.state not in ALIVE)
    assert job.state == "refused"
    assert "no run 'beef'" in (job.result() or {})["error"]["message"]


def test_a_job_outlives_its_starter_others_wait_and_stopping_loses_nothing(store: Store) -> None:
    code = (
        "import json, os, sys; from whence.experiments.jobs import submit; from whence.store.runs import Store\n"
        "submit(Store(sys.argv[1]), ['train'], json.loads(sys.argv[2]), title='x', about='orphan')\n"
        "os.kill(os.getpid(), 9)"
    )
    starter = subprocess.run([sys.executable, "-c", code, str(store.root), json.dumps(ENDLESS)], check=False)
    assert starter.returncode == -signal.SIGKILL
    first = job_about(store, "orphan")
    assert first is not None
    second = train(store, seed=1)
    assert second.state == "waiting"
    with pytest.raises(UserError, match="running already"):
        second.start()
    assert train(store, seed=1) == second  # the same again is the one that is there
    assert jobs(store)[0] == second
    until(lambda: steps(store) > 0)
    assert first.state == "running"
    second.stop()
    until(lambda: second.state == "stopped")
    first.stop()
    until(lambda: first.state == "stopped")
    [run] = store.summaries()
    assert run["state"] == "interrupted"
    first.start()
    until(lambda: steps(store) > run["step"])
    os.kill(first.started()["process"], signal.SIGKILL)
    until(lambda: first.state == "interrupted")
    until(lambda: store.summaries()[0]["state"] == "interrupted")  # its worker leaves, too


def test_a_damaged_job_is_left_out(store: Store) -> None:
    job = listing(store)
    (job.path / "job.json").write_bytes(b"{}")
    (store.root / "jobs" / ("f" * 12)).mkdir()
    assert jobs(store) == []
    write_sealed(job.path / "job.json", {"words": ["runs", "list"]})  # whole, and of another version
    assert jobs(store) == []
    assert job_about(store, "a list") is None


def test_links_are_not_followed(store: Store, tmp_path: Path) -> None:
    """A store from elsewhere cannot make a job write where it points."""
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    job = listing(store)
    (job.path / "out.json").unlink()
    (job.path / "out.json").symlink_to(target)
    job.start()
    until(lambda: job.state not in ALIVE)
    assert target.read_text() == "precious"


@pytest.mark.parametrize("linked", ["job", "all jobs"])
def test_folders_that_lead_elsewhere_are_not_entered(store: Store, tmp_path: Path, linked: str) -> None:
    job = listing(store)
    (there := tmp_path / "elsewhere").mkdir()
    path = job.path if linked == "job" else job.path.parent
    path.rename(tmp_path / "away")
    path.symlink_to(there)
    with pytest.raises(UserError, match="leads out of the store"):
        listing(store)
    assert jobs(store) == []
    with pytest.raises(CorruptFileError):
        job.start()
    assert list(there.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["leak", "audit", "--model=evil.py:build"],
        ["leak", "audit", "--model", "evil.py:build"],
        ["runs", "rm", "--yes", "beef"],
        ["app"],
        ["leak"],
        [],
    ],
)
def test_a_store_from_elsewhere_cannot_make_a_job_of_anything(store: Store, words: list[str]) -> None:
    with pytest.raises(UserError, match="from a terminal only"):
        submit(store, words, title="x", trains=False)
    job = listing(store)
    write_sealed(job.path / "job.json", {**job.asked(), "words": words})
    with pytest.raises(UserError, match="from a terminal only"):
        job.start()
    subprocess.run([sys.executable, "-m", "whence.app.job", str(job.path)], check=True)
    assert job.state == "failed"
