"""What every verb that trains does: check the store, run, watch, and say how to go on after an interruption."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from whence.cli.live import Watcher
from whence.cli.options import Engine
from whence.cli.output import duration, print_json, stderr
from whence.device import resolve_device
from whence.errors import UserError
from whence.runs.engines.local import Outcome, run_all, share
from whence.runs.execute import Conditions, bytes_needed
from whence.runs.files import Corrupt, canonical
from whence.runs.spec import RunSpec
from whence.runs.store import Store

EXIT_CODES = {"failed": 1, "crashed": 1, "busy": 1, "interrupted": 130}


def run_specs(specs: Sequence[RunSpec], engine: Engine, note: str = "") -> tuple[Store, Outcome]:
    """Check everything that can be checked without work, print the note, then run."""
    store = Store(engine.store)
    resolve_device(engine.device)
    distinct = {canonical({**spec.document(), "seed": 0}): spec for spec in specs}
    parameters = max(spec.check() for spec in distinct.values())
    workers, threads = share(len(specs), engine.workers, engine.threads)
    _check_memory(parameters, workers)
    store.prepare(bytes_needed(parameters, len(specs), workers))
    conditions = Conditions(engine.device, engine.threads, engine.checkpoint_seconds, engine.retry_failed)
    if note:
        stderr.print(note, markup=False, highlight=False, soft_wrap=True)
    with Watcher(specs, workers, threads) as watcher:
        outcome = run_all(specs, store, workers=engine.workers, conditions=conditions, on_event=watcher.event)
    return store, Outcome({run: _by_now(store, run) if end == "busy" else end for run, end in outcome.ends.items()})


def _by_now(store: Store, run: str) -> str:
    """A run that another process was busy with may be finished when all others are."""
    try:
        return "skipped" if store.folder(run).status()["state"] == "finished" else "busy"
    except (OSError, Corrupt):
        return "busy"


def _check_memory(parameters: int, workers: int) -> None:
    """Weights, gradients and two moments must fit; activations are not known beforehand."""
    needed, there = 16 * parameters * workers, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise UserError(
            f"model: {parameters:,} parameters in {workers} workers need at least {needed / 2**30:.0f} GiB of memory. "
            f"Allowed: what fits in {there / 2**30:.0f} GiB.",
            field="model",
        )


def train_one(run: RunSpec, engine: Engine, tell: Callable[[Store, dict[str, Any]], None]) -> int:
    """Run it and say how it ended. tell: what it came to, from its store and its status, if it finished."""
    store, outcome = run_specs([run], engine)
    folder = store.folder(run.id)
    try:
        status = folder.status()
    except FileNotFoundError:  # stopped before it could begin
        return leave(outcome)
    if engine.json_:
        print_json({"path": str(folder.path), **status})
        return leave(outcome)
    if status["state"] == "finished":
        tell(store, status)
    print(
        f"{run.id}  {status['state']}  step {status['step']}/{status['steps']}  {duration(status['seconds'])}"
        f"  {folder.path}"
    )
    if "error" in status:
        print(f"  {status['error']['message']}")
    return leave(outcome)


def leave(outcome: Outcome) -> int:
    """Say, last of all, how to go on after an interruption; return the exit code."""
    if outcome.interrupted:
        command = shlex.join(["whence", *sys.argv[1:]])
        stderr.print(
            f"Interrupted; nothing is lost. To go on:  {command}", markup=False, highlight=False, soft_wrap=True
        )
    return max((EXIT_CODES.get(end, 0) for end in outcome.ends.values()), default=0)
