"""Jobs are processes of their own: they outlive whoever started them, wait for their turn, stop, go on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from tests.app.browse import until
from whence.app.jobs import (
    ALIVE,
    ActionRequest,
    CompareRequest,
    Job,
    ResumeRequest,
    TrainRequest,
    find_job,
    jobs,
    submit,
)
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA
from whence.arena.run import ArenaRun
from whence.errors import UserError
from whence.experiments.comparison import read_comparison
from whence.experiments.saved import read_config, saved_configs
from whence.store.disk import CorruptFileError
from whence.store.files import canonical, digest, read_sealed, write_sealed
from whence.store.runs import Store

MODEL: dict[str, Any] = {
    "model": {"d_model": 16, "heads": 2, "layers": 1},
    "lengths": {"train_length": 8, "test_lengths": [16], "test_sequences": 16},
}
TASK = "k_back_recall:k=1,symbols=4"
ENDLESS = {**MODEL, "task": TASK, "training": {"steps": 1_000_000, "batch_size": 8, "evaluations": 2}}
COMPARISON = {
    **MODEL,
    "tasks": [TASK],
    "encodings": ["rope", "none"],
    "seeds": 1,
    "training": {"steps": 2, "batch_size": 8, "evaluations": 1},
}
REFUSED = ResumeRequest(runs=("beef" * 3,))
"""Over in a blink."""


def over(store: Store) -> Job:
    job = submit(REFUSED, store, title="impossible")
    until(lambda: job.state not in ALIVE)
    return job


def endless(seed: int) -> TrainRequest:
    return TrainRequest(instrument="arena", config=ArenaRun.read({**ENDLESS, "seed": seed}).model_dump(mode="json"))


def train(store: Store, seed: int) -> Job:
    return submit(endless(seed), store, title="a long one")


def steps(store: Store) -> int:
    return max((run.step for run in store.summaries()), default=0)


def test_a_comparison_is_run_and_its_results_are_in_the_store(store: Store) -> None:
    config = ArenaConfig.read(COMPARISON)
    request = CompareRequest(instrument="arena", config=config.model_dump(mode="json"))
    job = submit(request, store, title="a comparison", link={"comparison": "x"})
    until(lambda: job.state not in ALIVE)
    assert (job.state, job.failure) == ("finished", None), (job.path / "log.txt").read_text()
    [table] = read_comparison(ARENA, config, store).tables
    assert [len(row.finished) for row in table.rows] == [1, 1]
    [path] = saved_configs("arena", store)
    assert read_config(path, ArenaConfig) == config
    assert any("seeds" in line for line in job.progress)
    assert jobs(store) == jobs(store, kind="compare", instrument="arena") == [job]
    assert jobs(store, instrument="leak") == []
    assert find_job(request, store) == job
    assert find_job(REFUSED, store) is None
    assert job.submission.link == {"comparison": "x"}


def test_the_reason_of_a_refusal_is_stored(store: Store) -> None:
    job = over(store)
    assert job.state == "refused"
    assert job.failure is not None
    assert "no run 'beefbeefbeef'" in job.failure.message
    assert job.failure.field == "run"
    job = submit(CompareRequest(instrument="arena", config={"seeds": 0}), store, title="impossible, too")
    until(lambda: job.state not in ALIVE)
    assert job.state == "refused"
    assert job.failure is not None
    assert "seeds: expected a value greater than or equal to 1, got 0" in job.failure.message


def test_a_job_outlives_its_starter_others_wait_and_stopping_loses_nothing(store: Store) -> None:
    code = (
        "import os, sys; from whence.app.jobs import TrainRequest, submit; from whence.store.runs import Store\n"
        "submit(TrainRequest.model_validate_json(sys.argv[2]), Store(sys.argv[1]), title='x')\n"
        "os.kill(os.getpid(), 9)"
    )
    orphan = endless(seed=0)
    starter = subprocess.run([sys.executable, "-c", code, str(store.root), orphan.model_dump_json()], check=False)
    assert starter.returncode == -signal.SIGKILL
    first = find_job(orphan, store)
    assert first is not None
    second = train(store, seed=1)
    assert second.state == "waiting"
    with pytest.raises(UserError, match="already running"):
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
    assert run.state == "interrupted"
    first.start()
    until(lambda: steps(store) > run.step)
    assert first.started is not None
    os.kill(first.started.process, signal.SIGKILL)
    until(lambda: first.state == "interrupted")
    until(lambda: store.summaries()[0].state == "interrupted")  # its worker leaves, too


def test_a_damaged_job_is_left_out(store: Store) -> None:
    job = over(store)
    body = read_sealed(job.path / "job.json")
    (job.path / "job.json").write_bytes(b"{}")
    (store.root / "jobs" / ("f" * 12)).mkdir()
    assert jobs(store) == []
    write_sealed(job.path / "job.json", {**body, "format": 0})  # whole, and of another version
    assert jobs(store) == []
    assert find_job(REFUSED, store) is None
    write_sealed(job.path / "job.json", body)
    assert jobs(store) == [job]


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["log.txt", "progress.txt", "started.json"])
def test_links_are_not_followed(store: Store, tmp_path: Path, name: str, link: Callable[[Path, Path], None]) -> None:
    """A store from elsewhere cannot make a job write where it points, and the job is repeated all the same."""
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    job = over(store)
    state = job.state
    (job.path / name).unlink()
    link(target, job.path / name)
    job.start()
    until(lambda: job.state == state)
    assert target.read_text() == "precious"


def test_a_job_that_leads_elsewhere_is_not_entered(store: Store, tmp_path: Path) -> None:
    job = over(store)
    there = job.path.rename(tmp_path / "elsewhere")
    before = sorted(path.name for path in there.iterdir())
    job.path.symlink_to(there)
    assert jobs(store) == []
    with pytest.raises(CorruptFileError):
        job.start()
    assert over(store).state not in ALIVE
    assert not job.path.is_symlink()
    assert sorted(path.name for path in there.iterdir()) == before


def test_jobs_that_lead_elsewhere_are_not_entered(store: Store, tmp_path: Path) -> None:
    job = over(store)
    there = job.path.parent.rename(tmp_path / "elsewhere")
    before = sorted(there.rglob("*"))
    job.path.parent.symlink_to(there)
    for use in (lambda: over(store), lambda: jobs(store), job.start):
        with pytest.raises(UserError, match="is a symbolic link"):
            use()
    assert sorted(there.rglob("*")) == before


def request_becomes(job: Job, request: JsonValue) -> Job:
    """As somebody would write it who knows the format."""
    body = read_sealed(job.path / "job.json")
    other = Job(job.path.with_name(digest(canonical(request))[:12]))
    other.path.mkdir()
    write_sealed(other.path / "job.json", {**body, "request": request})
    shutil.rmtree(job.path)
    return other


def run_as_it_is(job: Job) -> None:
    """Its process, without the checks of whoever starts it."""
    subprocess.run([sys.executable, "-m", "whence.app.job", str(job.path)], check=True)


CODE: list[JsonValue] = ["evil.py:build", {"name": "x", "path": "evil.py:build"}, ["evil.py:build"]]


def audit_of(model: JsonValue) -> ActionRequest:
    return ActionRequest(instrument="leak", verb="audit", config={"model": model})


@pytest.mark.parametrize(
    "request_",
    [
        *map(audit_of, CODE),
        ActionRequest(instrument="fields", verb="render", config={"run": "beef", "input": "x", "out": "/tmp/x.png"}),
        ActionRequest(instrument="features", verb="export", config={}),
        ActionRequest(instrument="leak", verb="rm", config={}),
    ],
)
def test_no_job_names_code_or_writes_a_file_of_any_name(store: Store, request_: ActionRequest) -> None:
    with pytest.raises(UserError, match="on the command line only"):
        submit(request_, store, title="x", exclusive=False)
    job = request_becomes(over(store), request_.model_dump(mode="json"))
    with pytest.raises(UserError, match="on the command line only"):
        job.start()
    run_as_it_is(job)
    assert job.state == "refused"


@pytest.mark.parametrize(
    "foreign",
    [
        {"kind": "shell", "command": "rm"},
        {"kind": "action", "instrument": "os", "verb": "system", "config": {}},
        {"kind": "compare", "instrument": "../arena", "config": {}},
        {"kind": "resume", "runs": ["../../x"]},
        {"kind": "resume", "runs": ["beef" * 3], "command": "rm"},
        ["runs", "rm", "--yes", "beef"],
        {},
    ],
)
def test_a_store_from_elsewhere_cannot_make_a_job_of_anything(store: Store, foreign: JsonValue) -> None:
    job = request_becomes(over(store), foreign)
    assert jobs(store) == []
    with pytest.raises(CorruptFileError):
        job.start()
    run_as_it_is(job)
    assert job.state == "failed"
