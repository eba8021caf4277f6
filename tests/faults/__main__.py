"""Faults against real commands, and whether anything is lost, repeated or changed by them.

make faults                                            everything; writes the table into docs/reliability.md
python -m tests.faults --quick                         one of each kind, in less than a minute
python -m tests.faults --kind "bits flipped"           the kinds, or families, whose names contain this
python -m tests.faults --case "bits flipped/arena/3"   one trial again; its folder is kept
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.kinds import ALL, KINDS
from tests.faults.suite import AT_ONCE, Case, Outcome, carry_out, prepare
from tests.faults.table import table, write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kind", default="", help="only kinds, or families, whose name contains this")
    parser.add_argument("--subject", choices=ALL)
    parser.add_argument("--case", help="kind/subject/number")
    parser.add_argument("--sample", type=int, help="about so many trials, evenly chosen")
    parser.add_argument("--work", type=Path, help="a folder, which is kept; trials that are in it are not repeated")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.kind in f"{kind.family} {kind.name}"]
    kinds = [kind for kind in kinds if kind.quick] if options.quick else kinds
    only, cases = [options.subject] if options.subject else ALL[: 1 if options.quick else None], []
    if options.case:
        *name, subject, number = options.case.split("/")
        cases, only = [Case("/".join(name), subject, int(number))], [subject]
        kinds = [kind for kind in KINDS if kind.name == cases[0].kind]
    work = options.work or Path(tempfile.mkdtemp(prefix="whence-faults-"))
    suite = prepare(work, options.seed, kinds, only)
    cases = cases or suite.cases(kinds, options.quick)
    if options.sample:
        cases = cases[:: max(1, len(cases) // options.sample)]
    outcomes = carry_out(suite, cases, Progress(len(cases)), at_once=options.at_once, keep=bool(options.case))
    seconds = sum(outcome.seconds for outcome in outcomes) / options.at_once
    problems = sum(bool(outcome.problems) for outcome in outcomes)
    print(f"\n{len(outcomes)} trials, {problems} with problems, {seconds:.0f} s")
    if options.case:
        print(f"{outcomes[0].told} {outcomes[0].skipped}\n{work}")
    elif problems:
        print(work)
    elif not options.work:
        shutil.rmtree(work)
    if not (options.quick or options.kind or options.subject or options.case or options.sample):
        write(table(outcomes, options.seed, seconds))
    return bool(problems)


class Progress:
    """Prints problems as they are found, and how long it will take."""

    def __init__(self, count: int) -> None:
        self.count, self.done, self.started = count, 0, time.monotonic()

    def __call__(self, outcome: Outcome) -> None:
        self.done += 1
        for problem in outcome.problems:
            print(f"\n{outcome.case.name}\n  {outcome.told}\n  {problem}", flush=True)
        left = (time.monotonic() - self.started) / self.done * (self.count - self.done)
        if sys.stderr.isatty() or self.done % 100 == 0:
            print(f"\r{self.done} of {self.count}, {left:.0f} s left ", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
