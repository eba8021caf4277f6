"""Calls as a user makes them: `whence …` in this process, `python …` in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from whence.cli.main import run
from whence.execution.events import Event, OnEvent, RunEnd
from whence.execution.execute import attempt
from whence.execution.options import ExecutionOptions
from whence.store.runs import Store
from whence.training.config import AnyRun


def output(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    found = run(arguments)
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.out


def document(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Standard output, which must be exactly one JSON document."""
    return json.loads(output([*arguments, "--json"], capsys, code))


def python(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(project / "src")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def run_here(
    configs: Sequence[AnyRun],
    store: Store,
    options: ExecutionOptions,
    on_event: OnEvent,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, RunEnd]:
    """In place of `run_all`, in this process: its workers take seconds to start."""
    ends: dict[str, RunEnd] = {}

    def forward(event: Event) -> None:
        if event.end:
            ends[event.run] = event.end
        on_event(event)

    for config in configs:
        attempt(config, store, options.model_copy(update={"threads": 1}), forward, should_stop)
    return ends
