"""The runner: targets in processes of their own, two at a time, with progress, time left and a table at the end."""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.guard import Case, Outcome

SEED = 21
PIECE = 4000
"""Cases of one process: a target's memory does not grow for ever, and two processes share the largest target"""
MOST_SHOWN = 40
NOT_BEGUN = 2**63
DOCS = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- fuzz -->", "<!-- end of fuzz -->"


@dataclass
class Tally:
    """What came of the cases of one target."""

    cases: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    largest: int = 0
    """Bytes that a case has added to resident memory"""
    bad: list[dict[str, Any]] = field(default_factory=list)

    def note(self, case: Case, outcome: Outcome) -> None:
        self.cases += 1
        self.slowest, self.largest = max(self.slowest, outcome.seconds), max(self.largest, outcome.resident)
        if outcome.bad:
            notes = "\n".join(case.notes)[-3000:]
            self.bad.append({**asdict(outcome), "target": case.target, "number": case.number, "notes": notes})
        else:
            self.ends[outcome.kind] += 1

    def add(self, other: dict[str, Any]) -> None:
        self.cases += other["cases"]
        self.ends.update(other["ends"])
        self.slowest, self.largest = max(self.slowest, other["slowest"]), max(self.largest, other["largest"])
        self.bad += other["bad"]


@dataclass(frozen=True)
class Piece:
    target: str
    first: int
    count: int


# --- in the process of a target


def work(pieces: Sequence[Piece], seed: int, number: mmap.mmap | None = None) -> Iterator[tuple[str, Tally]]:
    """Cases one after the other; yields a target and what came of its last cases, now and then."""
    from tests.fuzz import guard
    from tests.fuzz.targets import load, replace_work

    with tempfile.TemporaryDirectory(dir=_fast(), prefix="whence-fuzz-") as name:
        place, folder = Path(name), Path(name) / "case"
        folder.mkdir()
        (place / "canary").write_text("unchanged")
        # compiled kernels are found where they are, and everything else that is kept in a home would be seen
        os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        os.environ.update(HOME=name, TMPDIR=str(folder), WHENCE_STORE=str(folder / "whence-runs"))
        tempfile.tempdir = str(folder)
        runs: dict[str, guard.Run] = {}
        for piece in pieces:
            (place / piece.target).mkdir()
            runs[piece.target] = load()[piece.target].prepare(place / piece.target)
        replace_work()
        known = _content(place, folder)
        guard.install()
        for piece in pieces:
            tally, told = Tally(), time.monotonic()
            for each in range(piece.first, piece.first + piece.count):
                if number is not None:
                    number[:8] = each.to_bytes(8, "little")
                case = guard.Case(piece.target, seed, each, folder)
                tally.note(case, guard.execute(runs[piece.target], case))
                if time.monotonic() - told > 1:
                    yield piece.target, tally
                    tally, told = Tally(), time.monotonic()
            if (now := _content(place, folder)) != known:
                changed = sorted({name for name, _ in set(now.items()) ^ set(known.items())})
                case = guard.Case(piece.target, seed, piece.first, folder)
                tally.note(case, guard.Outcome("Forbidden", where=f"changed outside: {changed[:3]}"))
                known = now
            yield piece.target, tally


def _fast() -> str | None:
    """Memory, where there is such a place: cases write many small files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _content(place: Path, folder: Path) -> dict[str, tuple[int, int]]:
    """Everything around the folder of cases: sizes and times of change."""
    paths = [path for path in place.rglob("*") if folder not in (path, *path.parents) and path.is_file()]
    return {str(path.relative_to(place)): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def run_here(pieces: Sequence[Piece], seed: int) -> int:
    """Without further processes, for few cases: what was bad is shown as a whole."""
    tallies: dict[str, Tally] = {}
    for target, part in work(pieces, seed):
        tallies.setdefault(target, Tally()).add(vars(part))
        for each in part.bad:
            command = f"python -m tests.fuzz --seed {seed} --replay {target} {each['number']}"
            print(f"{each['notes']}\n{each['text']}\n{each['kind']}: {each['where']}\n{command}\n")
    for target, tally in tallies.items():
        print(f"{target}: {dict(tally.ends)}, {len(tally.bad)} bad, {tally.slowest:.2f} s, {tally.largest >> 20} MiB")
    return int(any(tally.bad for tally in tallies.values()))


# --- in the process that was started


class Worker:
    """The process of a piece. Where it dies, the case is bad, and another one goes on after it."""

    def __init__(self, piece: Piece, seed: int, tallies: dict[str, Tally]) -> None:
        self.piece, self.seed, self.tally, self.done = piece, seed, tallies[piece.target], 0
        self.number = tempfile.NamedTemporaryFile()  # noqa: SIM115  (as long as the worker)
        self.errors = tempfile.NamedTemporaryFile()  # noqa: SIM115
        self.number.write(NOT_BEGUN.to_bytes(8, "little"))
        self.number.flush()
        words = [piece.target, str(piece.first), str(piece.count), str(seed), self.number.name]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        environment |= {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "COLUMNS": "120"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", "--piece", *words],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )
        self.thread = Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):
                told = json.loads(line)
                self.done += told["cases"]
                self.tally.add(told)
                for bad in told["bad"]:  # not only at the end, which may not come
                    print(f"\nbad: {bad['target']} {bad['number']}: {bad['kind']} {bad['where']}", file=sys.stderr)
        self.process.wait()

    def rest(self) -> Piece | None:
        """What is left to do after the process has ended; its death is noted."""
        self.thread.join()
        if self.process.returncode == 0:
            return None
        died = int.from_bytes(Path(self.number.name).read_bytes()[:8], "little")
        text = Path(self.errors.name).read_text(errors="replace")[-4000:]
        code = self.process.returncode
        why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        bad = {"kind": "died", "where": f"died: {why}: {text.strip().splitlines()[-1:]}", "text": text, "notes": ""}
        self.tally.bad.append({**bad, "target": self.piece.target, "number": died})
        if died == NOT_BEGUN:
            return None
        lost = died - self.piece.first - self.done
        self.tally.cases += 1
        # cases between the last message and the death were run, and are run again
        first = self.piece.first + self.done if lost > 0 else died + 1
        if lost > 0 and self.done:
            return Piece(self.piece.target, first, self.piece.first + self.piece.count - first)
        return Piece(self.piece.target, died + 1, self.piece.first + self.piece.count - died - 1)

    def stop(self) -> None:
        self.process.kill()


def run(cases: dict[str, int], seed: int, processes: int) -> dict[str, Tally]:
    tallies = {name: Tally() for name in cases}
    # the longest first would be better, and is not known
    pieces = deque(
        Piece(name, first, min(PIECE, count - first))
        for name, count in cases.items()
        for first in range(0, count, PIECE)
    )
    total, started, workers = sum(cases.values()), time.monotonic(), list[Worker]()
    shown = 0.0
    try:
        while pieces or workers:
            while pieces and len(workers) < processes:
                workers.append(Worker(pieces.popleft(), seed, tallies))
            time.sleep(0.1)
            for worker in [worker for worker in workers if not worker.thread.is_alive()]:
                workers.remove(worker)
                if (rest := worker.rest()) and rest.count > 0:
                    pieces.appendleft(rest)
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                _show_progress(tallies, total, shown - started, [worker.piece.target for worker in workers])
    finally:
        for worker in workers:
            worker.stop()
    return tallies


def _show_progress(tallies: dict[str, Tally], total: int, seconds: float, now: list[str]) -> None:
    done, bad = sum(each.cases for each in tallies.values()), sum(len(each.bad) for each in tallies.values())
    left = f"about {seconds / done * (total - done) / 60:.0f} min left" if done else ""
    text = f"{done:,} of {total:,} cases, {bad} bad, {seconds / 60:.1f} min, {left} ({', '.join(now)})"
    print(f"\r{text:<110}" if sys.stderr.isatty() else text, end="" if sys.stderr.isatty() else "\n", file=sys.stderr)


def table(tallies: dict[str, Tally], seed: int, seconds: float) -> str:
    from tests.fuzz.guard import MEMORY, RESIDENT, SECONDS
    from tests.fuzz.targets import load

    targets = load()
    lines = [
        f"`make fuzz`, seed {seed}: {sum(t.cases for t in tallies.values()):,} cases over {len(tallies)} targets in "
        f"{seconds / 60:.0f} minutes on 2 processes. A case is bad if an undocumented exception leaves a reader, a "
        f"traceback is printed, it takes more than {SECONDS:g} s, needs more than {RESIDENT >> 30} GiB of memory or "
        f"{MEMORY >> 30} GiB of address space, writes outside of its folder, starts a program, connects to anything, "
        "or prints control characters to the terminal.",
        "",
        "| target | what is spoiled | cases | accepted | refused | damaged | slowest (s) | memory (MiB) | bad |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, tally in tallies.items():
        ends = " | ".join(f"{tally.ends[end]:,}" for end in ("accepted", "refused", "damaged"))
        numbers = f"{tally.cases:,} | {ends} | {tally.slowest:.1f} | {tally.largest / 2**20:.0f} | {len(tally.bad)}"
        lines.append(f"| {name} | {targets[name].about} | {numbers} |")
    return "\n".join(lines)


def failures(tallies: dict[str, Tally], seed: int) -> str:
    """Grouped by where they happen, each with a command that shows one of them."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for tally in tallies.values():
        for bad in tally.bad:
            where = bad["where"] if bad["kind"] != "Unacceptable" else bad["text"].splitlines()[-1][:110]
            groups.setdefault((bad["target"], where), []).append(bad)
    lines = []
    for (target, where), members in sorted(groups.items(), key=lambda item: -len(item[1]))[:MOST_SHOWN]:
        lines.append(f"{len(members):>6} × {target}: {members[0]['kind']} {where}")
        lines.append(f"         python -m tests.fuzz --seed {seed} --replay {target} {members[0]['number']}")
    return "\n".join(lines)


def write_docs(text: str) -> None:
    """Between the markers of the page."""
    section = f"{BEGIN}\n{text}\n{END}"
    page = DOCS.read_text() if DOCS.exists() else f"# Reliability\n\n## Fuzzing\n\n{BEGIN}\n{END}\n"
    before, _, rest = page.partition(BEGIN)
    DOCS.write_text(before + section + rest.partition(END)[2])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, help="of each target; none: as many as a whole run has")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], metavar="TARGET")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "CASE"))
    parser.add_argument("--here", action="store_true", help="the targets of --only, in this process")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/reliability.md")
    parser.add_argument("--save", type=Path, metavar="FILE", help="all failures, as JSON")
    parser.add_argument("--piece", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.piece:
        target, first, count, seed, number = options.piece
        with open(number, "r+b") as file, mmap.mmap(file.fileno(), 8) as place:
            for _, tally in work([Piece(target, int(first), int(count))], int(seed), place):
                print(json.dumps(vars(tally)), flush=True)
        return 0
    if options.replay:
        return run_here([Piece(options.replay[0], int(options.replay[1]), 1)], options.seed)
    if options.here:
        return run_here([Piece(name, 0, options.cases or 50) for name in options.only], options.seed)
    from tests.fuzz.targets import load

    targets = load()
    if unknown := [name for name in options.only if name not in targets]:
        parser.error(f"no target {unknown[0]}: {', '.join(targets)}")
    cases = {name: options.cases or targets[name].cases for name in options.only or targets}
    started = time.monotonic()
    tallies = run(cases, options.seed, options.processes)
    print(table(tallies, options.seed, time.monotonic() - started))
    if any(tally.bad for tally in tallies.values()):
        print("\n" + failures(tallies, options.seed))
    if options.save:
        options.save.write_text(json.dumps([bad for tally in tallies.values() for bad in tally.bad], indent=1))
    if options.docs:
        write_docs(table(tallies, options.seed, time.monotonic() - started))
    return int(any(tally.bad for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
