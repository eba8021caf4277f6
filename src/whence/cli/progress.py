"""Progress on standard error: a live table of runs, or one live line, on a terminal; plain lines when piped."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whence.cli.output import print_note, stderr
from whence.formatting import counted, duration, rough_duration, scored, visible
from whence.training.config import AnyRun

if TYPE_CHECKING:
    from whence.execution.events import Event
    from whence.experiments.comparison import Watch
    from whence.store.runs import Store

ENDED = {
    "finished": "finished",
    "skipped": "cached",
    "failed": "failed",
    "crashed": "crashed",
    "busy": "running in another process",
}
PLAIN_EVERY_SECONDS = 10
SHOWN_AT_ONCE = 12
SETTLED_SECONDS = 2
"""Time left is shown once so much has been measured"""
COUNT = re.compile(r"(\d+)(?:/| of )(\d+)")


class _Activity:
    """A message with the time that has passed. A message that counts, such as `part 3 of 12`, gets the time left."""

    def __init__(self, message: str) -> None:
        self.started = self.counted_since = time.monotonic()
        self.total = self.first = self.done = 0
        self.show(message)

    def show(self, message: str) -> None:
        self.message = message
        done, total = map(int, count.groups()) if (count := COUNT.search(message)) else (0, 0)
        if total != self.total or done < self.done:  # another count begins
            self.total, self.first, self.counted_since = total, done, time.monotonic()
        self.done = done

    def __rich__(self) -> Text:
        now = time.monotonic()
        text = f"{visible(self.message)} … {duration(now - self.started)}"
        done, elapsed = self.done - self.first, now - self.counted_since
        if done > 0 and elapsed >= SETTLED_SECONDS:
            text += f", {time_left(elapsed / done * (self.total - self.done))}"
        return Text(text)


def time_left(seconds: float) -> str:
    return f"about {rough_duration(seconds)} left"


@contextmanager
def progress_line(first: str = "Starting") -> Iterator[Callable[[str], None]]:
    """A callback that shows what is being done: in one place of a terminal, elsewhere line by line."""
    if not stderr.is_terminal:
        yield print_note
        return
    activity = _Activity(first)
    with stderr.status(activity):
        yield activity.show


def watch_runs(store: Store) -> Watch:
    """For the engine: progress of runs, with an estimate from what the store has."""
    return partial(RunProgress, store=store)


class RunProgress:
    """A context manager that returns the callback for an engine's events."""

    def __init__(self, runs: Sequence[AnyRun], workers: int, threads: int, store: Store | None = None) -> None:
        self.runs = {run.id: run for run in runs}
        self.state: dict[str, Event] = {}
        self.ended: dict[str, str] = {}
        self.first_steps: dict[str, int] = {}
        """The step at which a run was started or resumed"""
        self.steps: dict[str, int] = {}
        """The step that it has reached since"""
        self.started = self.last_plain = time.monotonic()
        self.training_since: float | None = None
        self.workers, self.threads = workers, threads
        self.cached: set[str] = set()
        self.estimate = ""
        if store is not None:
            self._look_up(store)
        self.live = Live(console=stderr, refresh_per_second=4, transient=True) if stderr.is_terminal else None

    def _look_up(self, store: Store) -> None:
        from whence.execution.estimate import estimate_seconds, finished_runs

        finished = finished_runs(store)
        self.cached = self.runs.keys() & finished.keys()
        missing = [run for run in self.runs.values() if run.id not in self.cached]
        seconds = estimate_seconds(missing, self.workers, store, finished)
        if missing and seconds is not None:
            self.estimate = f" Estimated time: {rough_duration(seconds)} on {counted(self.workers, 'worker')}."

    def __enter__(self) -> Callable[[Event], None]:
        if self.live:
            self.live.__enter__()
        cached = f" ({len(self.cached)} cached)" if self.cached or len(self.runs) > 1 else ""
        where = "" if self.estimate or len(self.cached) == len(self.runs) else f" on {self._where()}"
        self._line(f"{counted(len(self.runs), 'run')}{cached}{where}.{self.estimate}")
        return self.event

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.__exit__(kind, error, trace)
        self._line(self._summary())

    def event(self, event: Event) -> None:
        name, run = event.kind, event.run
        if run in self.steps:
            self.steps[run] = max(self.steps[run], event.step)
        if name == "stopping":
            self._line("Stopping: each run finishes its step and writes a checkpoint (Ctrl-C again to kill)")
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
            if name == "started":
                self.first_steps[run] = self.steps[run] = event.step
                self.training_since = self.training_since or time.monotonic()
            self.state[run] = event
        if self.live:
            self.live.update(self._render())
        elif time.monotonic() - self.last_plain > PLAIN_EVERY_SECONDS:
            self.last_plain = time.monotonic()
            for run, latest in self.state.items():
                self._line(
                    f"{self._label(run)}: step {latest.step}/{self.runs[run].training.steps}{self._numbers(latest)}"
                )
            self._line(self._overall())

    def _overall(self) -> str:
        elapsed = duration(time.monotonic() - self.started)
        left = self._seconds_left()
        parts = [f"{len(self.ended)} of {counted(len(self.runs), 'run')} done", self._where(), elapsed]
        return " · ".join([*parts, time_left(left)] if left is not None else parts)

    def _seconds_left(self) -> float | None:
        """From the steps per second of all workers since training began here; None before it is known."""
        if self.training_since is None:
            return None
        elapsed = time.monotonic() - self.training_since
        done = sum(self.steps.values()) - sum(self.first_steps.values())
        if not done or elapsed < SETTLED_SECONDS:
            return None
        open_runs = [run for id, run in self.runs.items() if id not in self.ended and id not in self.cached]
        return elapsed / done * sum(run.training.steps - self.steps.get(run.id, 0) for run in open_runs)

    def _summary(self) -> str:
        ends = list(self.ended.values())
        counts = [f"{ends.count(end)} {text}" for end, text in ENDED.items() if end in ends]
        if unfinished := len(self.runs) - len(ends):
            counts.append(f"{unfinished} interrupted")
        elapsed = duration(time.monotonic() - self.started)
        return f"{counted(len(self.runs), 'run')} in {elapsed}: {', '.join(counts) or 'none'}"

    def _render(self) -> Group:
        table = Table.grid(padding=(0, 2))
        roomy = stderr.width >= 110  # a narrow terminal shows what matters, on one line
        for run, latest in list(self.state.items())[:SHOWN_AT_ONCE]:
            step, steps = latest.step, self.runs[run].training.steps
            what = self._label(run).removeprefix(f"{run} ")
            bar = ProgressBar(total=steps, completed=step, width=24 if roomy else 8)
            cells = [Text(visible(what), no_wrap=True, overflow="ellipsis"), f"{step}/{steps}", bar]
            table.add_row(*([run, *cells, Text(visible(self._numbers(latest)))] if roomy else cells))
        return Group(Text(self._overall()), table)

    def _where(self) -> str:
        return f"{counted(self.workers, 'worker')} × {counted(self.threads, 'thread')}"

    def _numbers(self, latest: Event) -> str:
        loss = "" if latest.loss is None else f"  loss {latest.loss:.3f}"
        return "  ".join([loss, *(f"{name} {scored(name, value)}" for name, value in latest.headline.items())])

    def _label(self, run: str) -> str:
        return f"{run} {' · '.join(self.runs[run].labels().values())} · seed {self.runs[run].seed}"

    def _line(self, text: str) -> None:
        console = self.live.console if self.live else Console(file=sys.stderr, width=200)
        console.print(visible(text), highlight=False, markup=False)
