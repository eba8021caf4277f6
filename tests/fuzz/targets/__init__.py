"""What is fuzzed. A target is prepared once per process, and then runs cases one after the other."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.fuzz.guard import Run

MODULES = ("words", "spellings", "documents", "files", "models", "app")


@dataclass(frozen=True)
class Target:
    name: str
    about: str
    cases: int
    """Of a whole run"""
    prepare: Callable[[Path], Run]
    """From a folder for valid inputs, which cases may read but not write"""


TARGETS: dict[str, Target] = {}


def target(cases: int) -> Callable[[Callable[[Path], Run]], Callable[[Path], Run]]:
    """Declares a target by the function that prepares it. The first line of its docstring is what is spoiled."""

    def declare(prepare: Callable[[Path], Run]) -> Callable[[Path], Run]:
        about = (prepare.__doc__ or "").splitlines()[0].rstrip(".")
        TARGETS[prepare.__name__] = Target(prepare.__name__, about, cases, prepare)
        return prepare

    return declare


def load() -> dict[str, Target]:
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
    return TARGETS


def replace_work() -> None:
    """What costs minutes and is not what is fuzzed: training, searches for baselines, servers, browsers.

    Everything before it runs: reading, validation, plans, checks, the store.
    """
    import whence.app.jobs
    import whence.app.server
    from whence.experiments import comparison
    from whence.features import actions
    from whence.features.activations.text import PROBES, checksum
    from whence.fields import cost
    from whence.leak.audit import artifact
    from whence.report import export
    from whence.shortcuts import baselines
    from whence.shortcuts.search import search

    def few(*arguments: Any) -> Any:
        return search(*arguments, samples=500, classes=("majority",))

    def interrupted(configs: Any, *others: Any) -> dict[str, str]:
        return {config.id: "interrupted" for config in configs}

    def text_checksum(text: str) -> str:
        return not_here() if text == PROBES else checksum(text)  # the packaged texts take seconds to read

    def not_here(*arguments: Any, **options: Any) -> Any:
        raise NotRunError

    for module, name, instead in (
        (comparison, "run_all", interrupted),
        (artifact, "measure_audit", not_here),
        (cost, "in_fresh_process", not_here),
        (export, "browser", lambda: None),
        (baselines, "search", few),
        (baselines, "_read", lambda name: None),
        (baselines, "_save", lambda name, scores: None),
        (whence.app.server, "free_port", not_here),
        (actions, "checksum", text_checksum),
        (whence.app.jobs.Job, "start", lambda job: None),
    ):
        mock.patch.object(module, name, instead).start()


class NotRunError(Exception):
    """Everything was accepted, and work would begin now."""
