"""Which trials there are, and how they are carried out: a few at a time, each in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.in_process import calls_of
from tests.faults.kinds import KINDS, Kind
from tests.faults.power import record
from tests.faults.subjects import SHORT, STORE, Subject, subjects, without_processes
from tests.faults.trial import VARIABLE, Child, Ended, Prepared, Trial, processes, results
from whence.cli.main import run

AT_ONCE = 3
"""For two cores: some of them wait for the disk"""


@dataclass(frozen=True)
class Case:
    """kind/subject/number: with the seed, all that decides a trial."""

    kind: str
    subject: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.subject}/{self.number}"


@dataclass(frozen=True)
class Outcome:
    case: Case
    problems: Sequence[str]
    skipped: str
    told: str
    seconds: float


@dataclass(frozen=True)
class Suite:
    """What all trials share."""

    work: Path
    seed: int
    prepared: dict[int, dict[str, Prepared]]
    """By number of steps and subject"""

    def cases(self, kinds: Sequence[Kind], quick: bool) -> list[Case]:
        found: list[Case] = []
        for kind in kinds:
            for name, count in kind.subjects.items():
                if prepared := self.prepared[kind.steps].get(name):
                    calls = range(0, sum(call in kind.calls for call in prepared.calls), count)
                    numbers = calls if kind.calls else range(count)
                    chosen = random.Random(self.seed).sample(numbers, kind.quick) if quick else numbers
                    found += [Case(kind.name, name, number) for number in chosen]
        return found

    def carry_out(self, case: Case, folder: Path) -> Outcome:
        """In this process, which is of no use afterwards."""
        started = time.monotonic()
        os.environ[VARIABLE] = str(folder)
        kind = next(each for each in KINDS if each.name == case.kind)
        prepared = self.prepared[kind.steps][case.subject]
        trial = Trial(folder, random.Random(f"{self.seed}/{case.name}"), prepared)
        try:
            kind.run(trial, case.number)
        except Exception:
            trial.problem("the suite itself", traceback.format_exc())
        finally:
            for left in processes(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
        return Outcome(case, trial.problems, trial.skipped, trial.told, time.monotonic() - started)


def prepare(work: Path, seed: int, kinds: Sequence[Kind], only: Sequence[str]) -> Suite:
    """Performs all subjects undisturbed, in this process: what is imported then need not be again."""
    without_processes()
    prepared: dict[int, dict[str, Prepared]] = {}
    for steps in sorted({kind.steps for kind in kinds}):
        names = {name for kind in kinds if kind.steps == steps for name in kind.subjects if name in only}
        folder = work / str(steps)
        shutil.rmtree(folder, ignore_errors=True)
        short, more, foreign = (
            subjects(folder / name, steps, **changes)
            for name, changes in (("inputs", {}), ("more", {"seeds": 2}), ("others", {"seed": 1}))
        )
        prepared[steps] = {}
        for name in sorted(names):
            print(f"undisturbed: {name}, {steps} steps", file=sys.stderr, flush=True)
            prepared[steps][name] = _prepare(
                folder / name, short[name], more[name], foreign[name] if steps == SHORT else None
            )
    return Suite(work, seed, prepared)


def _prepare(folder: Path, subject: Subject, more_seeds: Subject, foreign: Subject | None) -> Prepared:
    """foreign: with another seed; none if only real processes are to be disturbed."""

    def perform(name: str, work: Callable[[], int]) -> Ended:
        (folder / name / "out").mkdir(parents=True, exist_ok=True)
        ended = Child(folder / name, name, work).wait()
        assert ended.code == 0, ended.err.decode()
        return ended

    def count() -> int:
        (folder / "calls").write_text(json.dumps(calls_of(subject)))
        return 0

    (folder / "undisturbed").mkdir(parents=True)
    with _in_folder(folder / "undisturbed"):
        assert subject.perform() == 0
    perform("undisturbed", lambda: run(["runs", "list", "--store", str(STORE)]))  # writes the index
    documents = perform("undisturbed", subject.perform).documents
    expected = results(folder / "undisturbed" / STORE)
    if foreign is None:
        return Prepared(subject, more_seeds, folder, expected, documents, [])
    perform("foreign", foreign.perform)
    perform("counted", count)
    perform("recorded", lambda: record(subject, folder / "operations"))
    for name in ("counted", "recorded"):
        assert results(folder / name / STORE) == expected, "two undisturbed calls differ"
    return Prepared(subject, more_seeds, folder, expected, documents, json.loads((folder / "calls").read_text()))


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    here = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        os.chdir(here)


def carry_out(
    suite: Suite,
    cases: Sequence[Case],
    on_outcome: Callable[[Outcome], None],
    *,
    at_once: int = AT_ONCE,
    keep: bool = False,
) -> list[Outcome]:
    """Outcomes that are in the folder already, because an earlier process was ended, count."""
    gc.freeze()  # or every process copies what its collector looks at
    outcomes: list[Outcome] = []
    running: dict[int, tuple[Case, Path]] = {}
    waiting = list(enumerate(cases))[::-1]
    while waiting or running:
        while waiting and len(running) < at_once:
            number, case = waiting.pop()
            folder = suite.work / "trials" / str(number)
            if not _file_of(folder).exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                running[_fork(suite, case, folder)] = case, folder
            else:
                outcomes.append(_read(case, folder))
                on_outcome(outcomes[-1])
        if not running:
            continue
        case, folder = running.pop(os.wait()[0])
        outcomes.append(_read(case, folder))
        if not (outcomes[-1].problems or keep):
            shutil.rmtree(folder)
        on_outcome(outcomes[-1])
    return outcomes


def _file_of(folder: Path) -> Path:
    return folder.with_suffix(".json")


def _read(case: Case, folder: Path) -> Outcome:
    if not _file_of(folder).exists():
        return Outcome(case, ["the suite itself: a trial died"], "", "", 0.0)
    return Outcome(**{**json.loads(_file_of(folder).read_text()), "case": case})


def _fork(suite: Suite, case: Case, folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        outcome = suite.carry_out(case, folder)
        _file_of(folder).write_text(json.dumps({**asdict(outcome), "case": None}))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
