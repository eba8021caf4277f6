"""Work as it proceeds, on standard error: a table of runs, or one line, on a terminal; plain lines when piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whence.cli.output import print_note, stderr
from whence.formatting import duration, scored, visible
from whence.training.config import AnyRun

if TYPE_CHECKING:
    from whence.execution.events import Event

ENDED = {
    "finished": "done",
    "skipped": "done before",
    "failed": "FAILED",
    "crashed": "CRASHED",
    "busy": "running elsewhere, not waited for",
}
PLAIN_EVERY_SECONDS = 10
SHOWN_AT_ONCE = 12


@contextmanager
def progress_line(first: str = "") -> Iterator[Callable[[str], None]]:
    """What is being done, as a callback: in one place of a terminal, elsewhere line by line."""
    if not stderr.is_terminal:
        yield print_note
        return
    with stderr.status(Text(f"{visible(first)} …")) as status:
        yield lambda text: status.update(Text(f"{visible(text)} …"))


class RunProgress:
    """A context manager that gives an engine what receives its events."""

    def __init__(self, runs: Sequence[AnyRun], workers: int, threads: int) -> None:
        self.runs = {run.id: run for run in runs}
        self.state: dict[str, Event] = {}
        self.ended: dict[str, str] = {}
        self.started = time.monotonic()
        self.last_plain = self.started
        self.workers = f"{workers} worker{'s' * (workers > 1)} × {threads} thread{'s' * (threads > 1)}"
        self.live = Live(console=stderr, refresh_per_second=4, transient=True) if stderr.is_terminal else None

    def __enter__(self) -> Callable[[Event], None]:
        if self.live:
            self.live.__enter__()
        else:
            self._line(f"{len(self.runs)} run{'s' * (len(self.runs) != 1)} · {self.workers}")
        return self.event

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.__exit__(kind, error, trace)
        self._line(self._summary())

    def event(self, event: Event) -> None:
        name, run = event.kind, event.run
        if name == "stopping":
            self._line("stopping: each run finishes its step and writes a checkpoint (Ctrl-C again to kill)")
        elif name == "notice":
            self._line(f"{self._label(run)}: {event.message}")
        elif name in ENDED:
            self.ended[run] = name
            self.state.pop(run, None)
            if not self.live or name in ("failed", "crashed"):
                detail = f" ({event.message})" if event.message else self._numbers(event)
                self._line(f"{self._label(run)}: {ENDED[name]}{detail}")
        elif name == "interrupted":
            self.state.pop(run, None)
        else:
            self.state[run] = event
        if self.live:
            self.live.update(self._render())
        elif time.monotonic() - self.last_plain > PLAIN_EVERY_SECONDS:
            self.last_plain = time.monotonic()
            for run, latest in self.state.items():
                self._line(
                    f"{self._label(run)}: step {latest.step}/{self.runs[run].training.steps}{self._numbers(latest)}"
                )

    def _summary(self) -> str:
        ends = list(self.ended.values())
        counts = ", ".join(f"{ends.count(end)} {text.lower()}" for end, text in ENDED.items() if end in ends)
        elapsed = duration(time.monotonic() - self.started)
        return f"{len(ends)} of {len(self.runs)} runs ended ({counts or 'none'}) in {elapsed}"

    def _render(self) -> Group:
        table = Table.grid(padding=(0, 2))
        roomy = stderr.width >= 110  # a narrow terminal shows what matters, on one line
        for run, latest in list(self.state.items())[:SHOWN_AT_ONCE]:
            step, steps = latest.step, self.runs[run].training.steps
            what = self._label(run).removeprefix(f"{run} ")
            bar = ProgressBar(total=steps, completed=step, width=24 if roomy else 8)
            cells = [Text(visible(what), no_wrap=True, overflow="ellipsis"), f"{step}/{steps}", bar]
            table.add_row(*([run, *cells, Text(visible(self._numbers(latest)))] if roomy else cells))
        done, total = len(self.ended), len(self.runs)
        elapsed = time.monotonic() - self.started
        left = f" · about {duration(elapsed / done * (total - done))} left" if done else ""
        return Group(Text(f"{done} of {total} runs ended · {self.workers} · {duration(elapsed)}{left}"), table)

    def _numbers(self, latest: Event) -> str:
        loss = "" if latest.loss is None else f"  loss {latest.loss:.3f}"
        return "  ".join([loss, *(f"{name} {scored(name, value)}" for name, value in latest.headline.items())])

    def _label(self, run: str) -> str:
        return f"{run} {' · '.join(self.runs[run].labels().values())} · seed {self.runs[run].seed}"

    def _line(self, text: str) -> None:
        console = self.live.console if self.live else Console(file=sys.stderr, width=200)
        console.print(visible(text), highlight=False, markup=False)
