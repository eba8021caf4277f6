"""Faults against real commands, and whether anything is lost, repeated or changed by them.

make faults                                            everything; writes the table into docs/reliability.md
python -m tests.faults --quick                         a sample, in less than half a minute
python -m tests.faults --kind "byte flipped"           one kind
python -m tests.faults --case "byte flipped/arena/3"   one trial again, whose folder is kept
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.kinds import ALL, KINDS
from tests.faults.suite import AT_ONCE, Case, Outcome, carry_out, prepare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kind", help="only kinds, or families, whose name contains this")
    parser.add_argument("--subject", choices=ALL)
    parser.add_argument("--case", help="kind/subject/number")
    parser.add_argument("--sample", type=int, help="about so many trials, evenly chosen")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / f"whence-faults-{os.getpid()}")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if not options.kind or options.kind in f"{kind.family} {kind.name}"]
    only = [options.subject] if options.subject else ALL
    cases = []
    if options.case:
        *name, subject, number = options.case.split("/")
        cases, only = [Case("/".join(name), subject, int(number))], [subject]
        kinds = [kind for kind in KINDS if kind.name == cases[0].kind]
    suite = prepare(options.work, options.seed, kinds, only)
    cases = cases or suite.cases(kinds, options.quick)
    if options.sample:
        cases = cases[:: max(1, len(cases) // options.sample)]
    started, done = time.monotonic(), 0

    def on_outcome(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        for problem in outcome.problems:
            print(f"\n{outcome.case.name}\n  {outcome.told}\n  {problem}", flush=True)
        left = (time.monotonic() - started) / done * (len(cases) - done)
        if sys.stderr.isatty() or done % 50 == 0:
            print(f"\r{done} of {len(cases)}, {left:.0f} s left ", end="", file=sys.stderr, flush=True)

    outcomes = carry_out(suite, cases, on_outcome, keep=bool(options.case))
    if options.case:
        print(outcomes[0].told, outcomes[0].skipped, options.work)
    failed = [outcome for outcome in outcomes if outcome.problems]
    skipped = [outcome for outcome in outcomes if outcome.skipped]
    print(
        f"\n{len(outcomes)} trials, {len(failed)} with problems, {len(skipped)} skipped, {time.monotonic() - started:.0f} s"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
