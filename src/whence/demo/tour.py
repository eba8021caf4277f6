"""Runs the sections one after the other. A section that fails leaves a message in its place."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whence.demo import arena, features, fields, leak
from whence.demo.section import (
    Content,
    Context,
    MissingExtraError,
    Section,
    SectionError,
    SectionProgress,
    Size,
)
from whence.execution.options import ExecutionOptions
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.runs import Store

SECTIONS: tuple[Section, ...] = (arena.SECTION, leak.SECTION, features.SECTION, fields.SECTION)
PAGE, STORE = "index.html", "store"
OnSection = Callable[[Section, float, float, str], None]
"""Given a section, the share of it that is done, the share at the end of its current phase, and a message"""


@dataclass(frozen=True)
class Outcome:
    """A section with its content, or with the reason why there is none."""

    section: Section
    content: Content | None = None
    problem: str = ""
    install: str = ""
    """The command that installs what is missing; empty if nothing is"""
    seconds: float = 0.0

    @property
    def state(self) -> str:
        return "finished" if self.content else "missing packages" if self.install else "failed"

    def to_json(self) -> dict[str, Any]:
        content = self.content
        shown = {"verdict": content.verdict, "command": content.command, "runs": list(content.runs)} if content else {}
        more = {"further": list(content.further), "numbers": dict(content.numbers)} if content else {}
        reasons = {"problem": self.problem} if self.problem else {}
        install = {"install": self.install} if self.install else {}
        return {
            "name": self.section.name,
            "state": self.state,
            "seconds": round(self.seconds, 1),
            **shown,
            **more,
            **reasons,
            **install,
        }


@dataclass(frozen=True)
class Tour:
    """All sections, and the page that shows them."""

    page: Path
    outcomes: Sequence[Outcome]
    size: Size
    command: str
    """Makes it again"""
    seconds: float

    @property
    def failed(self) -> bool:
        return any(outcome.state == "failed" for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        return {
            "page": str(self.page),
            "seconds": round(self.seconds, 1),
            "sections": [outcome.to_json() for outcome in self.outcomes],
            "command": self.command,
        }


def run_tour(
    out: Path,
    size: Size = "full",
    options: ExecutionOptions = ExecutionOptions(),
    on_progress: OnSection = lambda section, done, end, message: None,
    sections: Sequence[Section] | None = None,
) -> Tour:
    """Run what the store of `out` does not have yet, and write the page.

    Raises `KeyboardInterrupt` after Ctrl-C; what was computed stays in the store, and the next call resumes.
    """
    from whence.demo.page import tour_page

    started, store = time.monotonic(), Store(out / STORE)
    store.prepare()
    outcomes = [_outcome(section, out, store, size, options, on_progress) for section in sections or SECTIONS]
    quick = ["--quick"] if size == "quick" else []
    command = shlex.join(["whence", "demo", *quick, *([] if out == Path("whence-demo") else ["--out", str(out)])])
    tour = Tour(out / PAGE, outcomes, size, command, time.monotonic() - started)
    disk.write_output(tour.page, tour_page(tour, store))
    return tour


def _outcome(
    section: Section, out: Path, store: Store, size: Size, options: ExecutionOptions, on_progress: OnSection
) -> Outcome:
    started = time.monotonic()
    progress = SectionProgress(lambda done, end, message: on_progress(section, done, end, message))
    try:
        content = section.run(Context(out, store, size, options, progress))
    except MissingExtraError as problem:
        on_progress(section, 1.0, 1.0, f"skipped: install its packages with  {problem.command}")
        return Outcome(section, problem=str(problem), install=problem.command)
    except (SectionError, CorruptFileError, OSError) as problem:
        return _failure(section, disk.explain(problem) if isinstance(problem, OSError) else str(problem), on_progress)
    except Exception as problem:  # no section takes the others down
        return _failure(section, disk.explain(problem), on_progress)
    on_progress(section, 1.0, 1.0, "done")
    return Outcome(section, content, seconds=time.monotonic() - started)


def _failure(section: Section, reason: str, on_progress: OnSection) -> Outcome:
    on_progress(section, 1.0, 1.0, f"FAILED: {reason}")
    return Outcome(section, problem=reason)
