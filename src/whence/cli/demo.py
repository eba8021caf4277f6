"""`whence demo`."""

from __future__ import annotations

import os.path
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whence.cli.options import Invocation, OutputOptions, Verb
from whence.cli.output import FAILED, INTERRUPTED, print_json, print_note, print_text, stderr
from whence.cli.progress import PLAIN_EVERY_SECONDS
from whence.errors import UserError
from whence.experiments.options import metavar
from whence.formatting import duration, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whence.demo.section import Section, Size
    from whence.demo.tour import OnSection, Tour

DESCRIPTION = """Tour the four instruments: train small models and write one page of results

  whence demo                       a few minutes on 2 cores; writes whence-demo/index.html
  whence demo --open                the same, and opens the page in a browser
  whence demo --quick               about a minute; needs the core dependencies only

The page compares four positional encodings, measures position leakage with and without a mitigation, shows
position-specific features of a language model and enlarges a photograph. A section whose packages are missing names
the command that installs them. Results are stored in the output directory: the same command takes seconds the next
time. Ctrl-C stops cleanly, and the same command resumes."""


class DemoOptions(OutputOptions):
    out: str = Field(
        default="whence-demo",
        description="directory of the page and its store; created if missing",
        json_schema_extra=metavar("DIR"),
    )
    quick: bool = Field(default=False, description="smaller models and fewer seeds")
    open: bool = Field(default=False, description="open the page in a browser")


def _demo(invocation: Invocation) -> int:
    options = invocation.options(DemoOptions)
    out = Path(options.out)
    if not options.out or (os.path.lexists(out) and not os.path.isdir(out)):
        raise UserError(f"out: expected a directory, got {options.out!r}. Pass --out DIR.")
    if stderr.is_terminal:
        print_note("whence: starting (loading torch) …")
    from whence.demo.tour import SECTIONS, run_tour
    from whence.store import disk

    disk.make_directory(out.absolute())
    size: Size = "quick" if options.quick else "full"
    try:
        with _progress(SECTIONS, size) as on_progress:
            tour = run_tour(out, size, on_progress=on_progress)
    except KeyboardInterrupt:
        print_note(f"Interrupted; nothing is lost. To resume:  {invocation.command}")
        return INTERRUPTED
    print_json(tour.to_json()) if options.json_ else _print_tour(tour)
    if options.open:
        webbrowser.open(tour.page.absolute().as_uri())
    return FAILED if tour.failed else 0


def _print_tour(tour: Tour) -> None:
    for outcome in tour.outcomes:
        text = outcome.content.headline if outcome.content else outcome.problem
        print_text(f"{outcome.section.name:<9} {text}")
        if outcome.install:
            print_text(f"{'':<9} install them:  {outcome.install}")
    print_text(f"page      {tour.page}   ({duration(tour.seconds)})")


class _TourProgress:
    """All sections in one display: which is running, what it does, and about how long the rest takes."""

    def __init__(self, sections: Sequence[Section], size: Size) -> None:
        self.expected = {section.name: section.seconds[size] for section in sections}
        self.done = dict.fromkeys(self.expected, 0.0)
        self.until = dict.fromkeys(self.expected, 0.0)
        self.messages = dict.fromkeys(self.expected, "")
        self.seconds = dict.fromkeys(self.expected, 0.0)
        self.running = ""
        self.started = self.changed = self.last_plain = time.monotonic()

    def update(self, section: Section, done: float, until: float, message: str) -> None:
        now, name = time.monotonic(), section.name
        if name != self.running:
            self.running, self.begun = name, now
        if done != self.done[name] or until != self.until[name]:
            self.changed = now
        self.done[name], self.until[name], self.messages[name] = done, until, message
        self.seconds[name] = now - self.begun
        if not stderr.is_terminal and (done >= 1 or now - self.last_plain > PLAIN_EVERY_SECONDS):
            self.last_plain = now
            print_note(f"{self.summary()} · {name}: {message}")

    def share(self, name: str) -> float:
        """Of a section. Where a phase reports nothing, time passes all the same, up to its end."""
        done = self.done[name]
        if name != self.running or done >= 1:
            return done
        waited = (time.monotonic() - self.changed) / (self.expected[name] * self.slowness)
        return min(done + waited, done + 0.95 * (self.until[name] - done))

    @property
    def slowness(self) -> float:
        """Seconds of this machine per expected second, from the sections that took their time."""
        known = [(self.seconds[name], seconds * self.done[name]) for name, seconds in self.expected.items()]
        took, expected = (sum(column) for column in zip(*known, strict=True))
        return max(took / expected, 0.2) if expected > 5 else 1.0

    def left(self) -> float:
        """Seconds."""
        return self.slowness * sum(
            seconds * (1 - self.share(name)) for name, seconds in self.expected.items() if self.done[name] < 1
        )

    def summary(self) -> str:
        ended = sum(done >= 1 for done in self.done.values())
        elapsed = duration(time.monotonic() - self.started)
        left = f" · about {duration(self.left())} left" if ended < len(self.done) else ""
        return f"{ended} of {len(self.done)} sections · {elapsed}{left}"

    def __rich__(self) -> Group:
        total = sum(self.expected.values())
        share = sum(seconds * self.share(name) for name, seconds in self.expected.items()) / total
        table = Table.grid(padding=(0, 2))
        for name, message in self.messages.items():
            ended = self.done[name] >= 1
            mark = "✓" if ended else "●" if name == self.running else "○"
            text = Text(visible(message), no_wrap=True, overflow="ellipsis")
            table.add_row(mark, name, duration(self.seconds[name]) if ended else "", text)
        width = max(10, min(60, stderr.width - 2))
        return Group(Text(self.summary()), ProgressBar(total=1, completed=share, width=width), table)


@contextmanager
def _progress(sections: Sequence[Section], size: Size) -> Iterator[OnSection]:
    """On a terminal redrawn in place, elsewhere as lines."""
    progress = _TourProgress(sections, size)
    if not stderr.is_terminal:
        print_note(progress.summary())
        yield progress.update
        return
    with Live(progress, console=stderr, refresh_per_second=4, transient=True):
        yield progress.update


VERBS = {"demo": Verb(DESCRIPTION, _demo)}
