"""What is disturbed: commands of every instrument, a collection, an audit and a job, small enough for many trials."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.calls import run_here
from whence.app import job as job_process
from whence.app import jobs
from whence.app.jobs import CompareRequest, submit
from whence.arena.run import ArenaRun
from whence.cli.main import run
from whence.errors import UserError
from whence.execution.events import OnEvent, RunEnd
from whence.experiments import comparison
from whence.fields import instrument as fields
from whence.fields.cost import Cost
from whence.leak.run import LeakRun
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.runs import Store
from whence.training.config import AnyRun

STORE = Path("store")
"""Relative to the folder of a trial: nothing that is stored depends on where that is"""
SHORT, LONG = 5, 120
"""Steps: as few as possible; enough for signals to arrive in them"""
ENGINE = ("--workers", "1", "--threads", "1", "--checkpoint-interval", "0", "--json", "--store", str(STORE))
EXIT_CODES = {"finished": 0, "failed": 1, "refused": 2, "stopped": 130}
Act = Callable[[], int]
"""One command; returns its exit code"""


@dataclass(frozen=True)
class Subject:
    """Commands that are given one after the other. Each is over at once if its results are stored."""

    name: str
    commands: tuple[Act, ...]

    def perform(self) -> int:
        """The exit code of the first that does not succeed."""
        return next((code for act in self.commands if (code := act())), 0)


def subjects(inputs: Path, steps: int = SHORT, seeds: int = 1, seed: int = 0) -> dict[str, Subject]:
    """By name. inputs: an absolute folder for their configurations."""
    inputs.mkdir(parents=True, exist_ok=True)
    training = {"steps": steps, "batch_size": 4, "evaluations": 2, "warmup": 2}
    several = {"seeds": seeds, "first_seed": seed}
    model = {"d_model": 16, "heads": 2, "layers": 1}
    lengths = {"train_length": 16, "test_lengths": [32], "test_sequences": 8}
    arena: dict[str, Any] = {"model": model, "lengths": lengths, "training": training}
    leak: dict[str, Any] = {"data": "synthetic:steps=48,channels=2", "model": {"d_model": 8}, "training": training}
    dictionaries = {"presets": ["plain_topk", "position_mean_topk"], "d_sae": 32, "training": training, **several}
    field = {
        "data": "photos:size=16,factor=2",
        "axis": "hyponet",
        "model": {"d_model": 8, "layers": 1, "lps": 4},
        "training": {**training, "crops": 2, "pixels": 32},
        **several,
    }

    def command(words: str, config: dict[str, Any]) -> Act:
        path = inputs / f"{'-'.join(words.split()[:2])}-{len(list(inputs.iterdir()))}.json"
        path.write_text(json.dumps(config))
        return lambda: run([*words.split(), "--config", str(path), *ENGINE])

    def action(words: str) -> Act:
        return lambda: run([*words.split(), "--json", "--store", str(STORE)])

    compared = {**arena, "tasks": ["copy"], "encodings": ["rope", "none"], **several}
    trained, alone = {**arena, "task": "copy", "seed": seed}, {**leak, "seed": seed}
    collected, audited = ArenaRun.read(trained).id, LeakRun.read(alone).id
    sources = "synthetic:d_in=16,features=24,context_size=8"
    commands = {
        "arena": [command("arena compare", compared)],
        "leak": [command("leak compare", {**leak, "mitigations": ["none", "zero_masked_positions"], **several})],
        "features": [command("features compare", {**dictionaries, "data": sources})],
        "fields": [command("fields compare", field)],
        "collection": [
            command("arena train", trained),
            action(f"features collect --model run:{collected} --layer 1 --tokens 3000 --name some"),
            command("features compare --activations some", dictionaries),
        ],
        "audit": [command("leak train", alone), action(f"leak audit --run {audited} --ratios 0.5 1.0")],
        "job": [lambda: start_job(compared)],
    }
    return {name: Subject(name, tuple(acts)) for name, acts in commands.items()}


def start_job(config: dict[str, Any]) -> int:
    """As the app does; returns when the job has ended."""
    try:
        job = submit(CompareRequest(instrument="arena", config=config), Store(STORE), title="a comparison")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except (OSError, CorruptFileError) as error:
        print(disk.explain(error), file=sys.stderr)
        return 1
    while job.alive:
        time.sleep(0.02)
    return EXIT_CODES.get(job.state, 1)


class ProcessHere:
    """In place of `subprocess.Popen` for jobs: this process does the work, before the starter goes on."""

    def __init__(self, arguments: list[str], **_: Any) -> None:
        streams = [os.dup(number) for number in (1, 2)]
        try:
            job_process.main(Path(arguments[-1]))
        except Exception:
            traceback.print_exc()
        finally:
            for number, stream in enumerate(streams, start=1):
                os.dup2(stream, number)
                os.close(stream)

    def poll(self) -> int:
        return 0

    wait = poll


def stopped_after(checks: int) -> None:
    """From now on, every run is stopped the so-many-th time that it asks whether it should, as by Ctrl-C."""

    def run_all(configs: Sequence[AnyRun], store: Store, options: Any, on_event: OnEvent) -> dict[str, RunEnd]:
        return {
            run_id: end
            for config in configs
            for often in [itertools.count()]
            for run_id, end in run_here(
                [config], store, options, on_event, lambda often=often: next(often) >= checks
            ).items()
        }

    comparison.run_all = run_all


PROCESSES = comparison.run_all, jobs.subprocess, fields.measure_cost


def without_processes() -> None:
    """From now on, runs and jobs are carried out by this process."""
    comparison.run_all = run_here
    jobs.subprocess = SimpleNamespace(Popen=ProcessHere, DEVNULL=None)
    fields.measure_cost = lambda store, run: Cost(encode=1.0, decode=1.0, memory=1.0)  # in a process of its own


def with_processes() -> None:
    """From now on, by workers and processes of jobs."""
    comparison.run_all, jobs.subprocess, _ = PROCESSES
