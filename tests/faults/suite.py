"""Which trials there are, and how they are carried out: two at a time, each in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.faults.in_process import calls_of
from tests.faults.kinds import KINDS, Kind
from tests.faults.power import record
from tests.faults.subjects import LONG, STORE, Subject, subjects, without_processes
from tests.faults.trial import VARIABLE, Child, Results, Trial, processes, results
from whence.cli.main import run

AT_ONCE = 2


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
    """What all trials share: undisturbed stores, and what is in them."""

    work: Path
    seed: int
    subjects: dict[str, Subject]
    long: dict[str, Subject]
    expected: dict[str, Results]
    documents: dict[str, list[Any]]
    calls: dict[str, list[str]]

    def cases(self, kinds: Sequence[Kind]) -> list[Case]:
        found: list[Case] = []
        for kind in kinds:
            for subject, count in kind.subjects.items():
                if subject not in self.subjects:
                    continue
                count = count or sum(name in kind.calls for name in self.calls[subject])
                found += [Case(kind.name, subject, number) for number in range(count)]
        return found

    def carry_out(self, case: Case, folder: Path) -> Outcome:
        """In this process, which must not be needed any more."""
        started = time.monotonic()
        os.environ[VARIABLE] = str(folder)
        kind = next(each for each in KINDS if each.name == case.kind)
        rng = random.Random(f"{self.seed}/{case.name}")
        name = case.subject
        trial = Trial(
            folder,
            self.subjects[name],
            rng,
            self.expected[name],
            self.documents[name],
            self.calls[name],
            *(self.work / state / name / STORE for state in ("undisturbed", "foreign")),
            self.work / "recorded" / name / "operations",
        )
        try:
            kind.run(trial, case.number)
        except Exception:
            trial.problem("the suite itself", traceback.format_exc())
        finally:
            for left in processes(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, 9)
        return Outcome(case, trial.problems, trial.skipped, trial.told, time.monotonic() - started)


def prepare(work: Path, seed: int, wanted: Sequence[str]) -> Suite:
    """Performs everything once undisturbed, in this process: what is imported then need not be again."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    without_processes()
    short = {name: each for name, each in subjects(work / "inputs").items() if name in wanted}
    expected, documents, calls = {}, {}, {}
    foreign = subjects(work / "foreign-inputs", seed=1)
    here = Path.cwd()
    for name, subject in short.items():
        print(f"undisturbed: {name}", file=sys.stderr, flush=True)
        folder = work / "undisturbed" / name
        folder.mkdir(parents=True)
        os.chdir(folder)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert subject.perform() == 0
        expected[name] = results(folder / "store")
        (work / "foreign" / name / "out").mkdir(parents=True)
        assert Child(work / "foreign" / name, "foreign", foreign[name].perform).wait().code == 0
        (folder / "out").mkdir()
        Child(folder, "list", lambda: run(["runs", "list", "--store", str(STORE)])).wait()  # writes the index
        documents[name] = Child(folder, "again", subject.perform).wait().documents
        counted = work / "calls" / name
        (counted / "out").mkdir(parents=True)
        child = Child(counted, "calls", lambda: print(json.dumps(calls_of(subject)), file=(counted / "n").open("w")) or 0)
        assert child.wait().code == 0
        calls[name] = json.loads((counted / "n").read_text())
        recorded = work / "recorded" / name
        (recorded / "out").mkdir(parents=True)
        assert Child(recorded, "record", lambda: record(subject, recorded / "operations")).wait().code == 0
        assert results(recorded / "store") == expected[name], "stopped and resumed, it differs"
        assert results(counted / "store") == expected[name], "two undisturbed calls differ"
    os.chdir(here)
    return Suite(work, seed, short, subjects(work / "inputs", LONG), expected, documents, calls)


def carry_out(
    suite: Suite, cases: Sequence[Case], on_outcome: Callable[[Outcome], None], *, keep: bool = False
) -> list[Outcome]:
    gc.freeze()  # or every process copies what its collector looks at
    outcomes: list[Outcome] = []
    running: dict[int, tuple[Case, Path]] = {}
    waiting = list(enumerate(cases))[::-1]
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, case = waiting.pop()
            folder = suite.work / "trials" / str(number)
            folder.mkdir(parents=True)
            running[_fork(suite, case, folder)] = case, folder
        pid, status = os.wait()
        case, folder = running.pop(pid)
        path = folder.with_suffix(".json")
        if path.exists():
            outcome = Outcome(**{**json.loads(path.read_text()), "case": case})
        else:
            outcome = Outcome(case, [f"the suite itself: a trial ended with status {status}"], "", "", 0.0)
        if not (outcome.problems or keep):
            shutil.rmtree(folder)
        outcomes.append(outcome)
        on_outcome(outcome)
    return outcomes


def _fork(suite: Suite, case: Case, folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        outcome = suite.carry_out(case, folder)
        folder.with_suffix(".json").write_text(json.dumps({**asdict(outcome), "case": None}))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
