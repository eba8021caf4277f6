"""One trial: a folder with a store and a user's own files, processes in it, and what must hold whatever happens.

A command is given in a process of its own, forked from one that has imported everything already.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.subjects import STORE, Subject
from whence.cli.main import run

PATIENCE = 90.0
"""Seconds after which a process hangs; undisturbed and on a machine of its own, none takes more than ten"""
READING = 5.0
"""Seconds of processor time for a command that only reads"""
EXIT_CODES = (0, 1, 2, 130)
TRACEBACK = re.compile(rb"Traceback \(most|Exception ignored in|Exception in thread|Fatal Python error|Segmentation")
VARIABLE = "WHENCE_TRIAL"
"""In the environment of every process that a trial starts"""
NOT_REPEATED = {"seconds", "report", "command", "path", "created", "updated", "cost", "runs", "files", "begun"}
"""Keys of documents that differ from one undisturbed call to the next"""
RESULTS = ("state", "step", "tokens", "loss", "latest", "headline")
Work = Callable[[], int]
Results = dict[str, str]
"""Of a store, by file: a checksum of what must not depend on what happened meanwhile"""


@dataclass(frozen=True)
class Ended:
    """A process that has ended, or (code None) was ended because it would not."""

    code: int | None
    out: bytes
    err: bytes
    seconds: float
    """Of processor time, with its children's"""

    @property
    def documents(self) -> list[Any]:
        """What was printed, without what differs from call to call."""
        text, found = self.out.decode().lstrip(), []
        while text.startswith(("{", "[")):
            document, end = json.JSONDecoder().raw_decode(text)
            found.append(_repeated(document))
            text = text[end:].lstrip()
        return found


class Child:
    """A process in the folder of a trial."""

    def __init__(self, folder: Path, name: str, work: Work) -> None:
        self.files = [folder / "out" / f"{name}.{stream}" for stream in ("out", "err")]
        self.seconds = 0.0
        self.pid = os.fork()
        if self.pid == 0:
            _become(folder, self.files, work)
        self.code: int | None = None

    def alive(self) -> bool:
        if self.code is None:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.code, self.seconds = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        return self.code is None

    def wait(self) -> Ended:
        deadline = time.monotonic() + PATIENCE
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        hangs = self.alive()
        if hangs:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        out, err = (path.read_bytes() for path in self.files)
        return Ended(None if hangs else self.code, out, err, self.seconds)


def _become(folder: Path, files: list[Path], work: Work) -> None:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        for number, path in enumerate(files, start=1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = work()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def processes(folder: Path) -> list[int]:
    """Of a trial, those that were started as programs: workers and jobs."""
    mark = f"{VARIABLE}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@dataclass(frozen=True)
class Prepared:
    """A subject, performed undisturbed."""

    subject: Subject
    more_seeds: Subject
    """The same with one seed more"""
    folder: Path
    expected: Results
    documents: list[Any]
    """Printed when everything is stored already"""
    calls: list[str]
    """By which it changes the store, in turn"""

    @property
    def finished(self) -> Path:
        """A store"""
        return self.folder / "undisturbed" / STORE

    @property
    def foreign(self) -> Path:
        """That of another seed"""
        return self.folder / "foreign" / STORE

    @property
    def recording(self) -> Path:
        """What was changed, for `power`"""
        return self.folder / "operations"

    @property
    def inputs(self) -> Path:
        return self.folder.parent / "inputs"


@dataclass
class Trial:
    folder: Path
    rng: random.Random
    of: Prepared
    problems: list[str] = field(default_factory=list)
    skipped: str = ""
    """Why there was no fault"""
    told: str = ""
    """What was done, for whoever replays it"""

    def __post_init__(self) -> None:
        for name in ("out", "mine/deep"):
            (self.folder / name).mkdir(parents=True)
        for name in ("letter.txt", "deep/letter.txt"):
            (self.folder / "mine" / name).write_text(f"{name}: mine")
        (self.folder / "mine" / "removing-me").mkdir()
        self.outside = self.snapshot()

    @property
    def store(self) -> Path:
        return self.folder / STORE

    @property
    def subject(self) -> Subject:
        return self.of.subject

    def problem(self, kind: str, text: str) -> None:
        self.problems.append(f"{kind}: {text}")

    # --- commands

    def start(self, name: str, work: Work) -> Child:
        return Child(self.folder, name, work)

    def judge(self, name: str, ended: Ended, also: tuple[int, ...] = ()) -> Ended:
        """No traceback, no hang, an exit code that is documented. also: others that are fine here."""
        for printed in (ended.err, ended.out):
            if match := TRACEBACK.search(printed):
                self.problem("traceback", f"{name}: {printed[match.start() :][-1500:].decode(errors='replace')}")
                break
        if ended.code is None:
            self.problem("hang", f"{name}: still there after {PATIENCE:.0f} s")
        elif ended.code not in (*EXIT_CODES, *also):
            self.problem("exit code", f"{name}: {ended.code}")
        return ended

    def attempt(self, name: str, work: Work, also: tuple[int, ...] = ()) -> Ended:
        return self.judge(name, self.start(name, work).wait(), also)

    def command(self, words: str) -> int:
        """In this process."""
        return run([*words.split(), "--store", str(STORE)])

    def look(self, *commands: str) -> dict[str, int]:
        """Commands that only read: by command, its exit code."""
        path = self.folder / "out" / "codes"

        def work() -> int:
            codes: dict[str, int] = {}
            for words in commands:
                codes[words] = self.command(words)
                path.write_text(json.dumps(codes))
            return 0

        if (used := self.attempt("look", work).seconds) > READING * len(commands):
            self.problem("hang", f"{commands}: {used:.0f} s")
        codes: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        for words in commands:
            if codes.get(words) not in EXIT_CODES:
                self.problem("exit code", f"{words}: {codes.get(words)}")
        return codes

    def repair(self, name: str) -> None:
        self.attempt(name, lambda: self.command("runs repair --yes --retrain --workers 1 --threads 1"))

    def verify(self) -> None:
        """All is well, or can be repaired."""
        if self.look("runs verify") != {"runs verify": 0}:
            self.repair("repair-at-last")
            if self.look("runs verify") != {"runs verify": 0}:
                self.problem("stuck", "'runs verify' reports problems after 'runs repair'")

    # --- what must hold

    def check_kept(self, promised: Mapping[str, str], when: str) -> None:
        """Nothing that was finished is lost or changed."""
        there = results(self.store)
        for name, checksum in promised.items():
            if name not in there:
                self.problem("lost", f"{name}, {when}")
            elif there[name] != checksum:
                self.problem("silent change", f"{name}, {when}")

    def check_outside(self) -> None:
        now = self.snapshot()
        changed = sorted(name for name in {*self.outside, *now} if self.outside.get(name) != now.get(name))
        if changed:
            self.problem("outside", ", ".join(changed))

    def go_on(self, spared: Mapping[str, Any] | None = None) -> None:
        """The same command again, undisturbed: everything ends as if nothing had happened, and nothing runs twice.

        spared: runs that must be left alone, as `finished` gives them; by default all that are finished.
        """
        before = finished(self.store) if spared is None else spared
        ended = self.attempt("again", lambda: self.subject.perform() or self.subject.perform())
        if ended.code != 0:
            self.problem("stuck", f"exit code {ended.code}: {ended.err[-600:].decode(errors='replace')}")
            return
        if self.of.documents != (printed := ended.documents[len(ended.documents) - len(self.of.documents) :]):
            self.problem("silent change", f"what is printed: {_difference(self.of.documents, printed)}")
        self.check_results("after the same command")
        after = finished(self.store)
        for run_id, stamps in before.items():
            if after.get(run_id) != stamps:
                self.problem("duplicated", f"{run_id} was finished and has been trained again")

    def snapshot(self) -> dict[str, str]:
        """Of everything in the folder but the store and what processes print."""
        found = {}
        for path in _walk(self.folder):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            changed = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
            found[str(path.relative_to(self.folder))] = f"{status.st_mode} {changed} {_checksum(content)}"
        return found

    def check_results(self, when: str) -> None:
        there = results(self.store)
        for name, checksum in self.of.expected.items():
            if there.get(name) != checksum:
                self.problem("silent change", f"{name} {'differs' if name in there else 'is missing'} {when}")


def results(store: Path) -> Results:
    """Read without whence's own code."""
    found: Results = {}
    for path in store.glob("runs/*/status.json"):
        status = _body(path)
        if isinstance(status, dict) and status.get("state") == "finished":
            kept = {key: status.get(key) for key in RESULTS}
            found[f"{path.parent.name}/status"] = _checksum(json.dumps(kept, sort_keys=True).encode())
            for name in ("metrics.jsonl", "model.safetensors"):
                file = path.with_name(name)
                found[f"{path.parent.name}/{name}"] = _checksum(file.read_bytes()) if _is_file(file) else "missing"
    for path in store.glob("artifacts/*.json"):
        body = _body(path)
        if isinstance(body, dict) and "result" in body:
            kept = [body["kind"], body["request"], body["result"]]
            found[path.name] = _checksum(json.dumps(kept, sort_keys=True).encode())
    for path in store.glob("activations/*/*"):
        if _is_file(path) and not path.name.startswith("."):
            found["/".join(path.parts[-2:])] = _checksum(path.read_bytes())
    return found


def finished(store: Path) -> dict[str, tuple[int, ...]]:
    """By run, what tells whether its weights and metrics were written again."""
    found = {}
    for path in store.glob("runs/*/status.json"):
        status = _body(path)
        files = [path.with_name(name) for name in ("metrics.jsonl", "model.safetensors")]
        if isinstance(status, dict) and status.get("state") == "finished" and all(map(_is_file, files)):
            stats = [file.stat() for file in files]
            found[path.parent.name] = tuple(n for one in stats for n in (one.st_ino, one.st_mtime_ns))
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name not in (STORE.name, "out"):
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from _walk(path)


def _body(path: Path) -> Any:
    if not _is_file(path):
        return None
    try:
        return json.loads(path.read_bytes())["body"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_file(path: Path) -> bool:
    return not path.is_symlink() and path.is_file() and path.stat().st_size < 2**30


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _repeated(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _repeated(value) for key, value in document.items() if key not in NOT_REPEATED}
    return [_repeated(value) for value in document] if isinstance(document, list) else document


def _difference(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(one[key], other.get(key)) for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = list(zip(one, other, strict=True))
    else:
        return f"{str(one)[:100]} → {str(other)[:100]}"
    return next((_difference(a, b) for a, b in pairs if a != b), "nothing")
