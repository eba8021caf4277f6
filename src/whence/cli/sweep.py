"""What every verb that trains does: run, show progress, and print how to resume after an interruption."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whence.cli.live import Watcher
from whence.cli.options import Engine
from whence.cli.output import print_json, stderr
from whence.execution.engines.local import RunEnd
from whence.experiments import comparison
from whence.formatting import duration
from whence.store.runs import Store
from whence.training.config import RunConfig

EXIT_CODES = {"failed": 1, "crashed": 1, "busy": 1, "interrupted": 130}


def execute_runs(specs: Sequence[RunConfig], engine: Engine) -> tuple[Store, dict[str, RunEnd]]:
    store = Store(engine.store)
    return store, comparison.execute_runs(specs, store, engine.execution, Watcher)


def train_one(run: RunConfig, engine: Engine, tell: Callable[[Store, dict[str, Any]], None]) -> int:
    """Run it and print how it ended. tell: prints the results of a finished run, from its store and its status."""
    store, ends = execute_runs([run], engine)
    folder = store.folder(run.id)
    try:
        status = folder.status()
    except FileNotFoundError:  # stopped before it could begin
        return exit_code(ends)
    if engine.json_:
        print_json({"path": str(folder.path), **status})
        return exit_code(ends)
    if status["state"] == "finished":
        tell(store, status)
    print(
        f"{run.id}  {status['state']}  step {status['step']}/{status['steps']}  {duration(status['seconds'])}"
        f"  {folder.path}"
    )
    if "error" in status:
        print(f"  {status['error']['message']}")
    return exit_code(ends)


def exit_code(ends: Mapping[str, str]) -> int:
    """From how the runs ended. After an interruption, print how to resume."""
    if "interrupted" in ends.values():
        command = shlex.join(["whence", *sys.argv[1:]])
        stderr.print(
            f"Interrupted; nothing is lost. To resume:  {command}", markup=False, highlight=False, soft_wrap=True
        )
    return max((EXIT_CODES.get(end, 0) for end in ends.values()), default=0)
