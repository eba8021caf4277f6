"""What a case may not do: raise, hang, take memory, write or run something outside of its folder, print what a terminal
would obey.

The hook that watches writes sees every call of Python's own modules; libraries in C and Rust are watched by the files
of the folder around it. It cannot be removed, so that only processes of their own install it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from whence.errors import UserError
from whence.store.disk import CorruptFileError

SECONDS = 5.0
"""Of a processor, so that a busy machine does not matter; of a clock, `PATIENCE` times as many"""
PATIENCE = 4
MEMORY = 2 * 2**30
"""Address space above what a process has before its first case"""
RESIDENT = 2**30
"""Bytes that one case may add to resident memory"""
HANDLED = (UserError, CorruptFileError)
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""What a terminal obeys; lines of CSV end with both"""
ALLOCATION = re.compile(r"MemoryError|allocate|not enough memory|std::bad_alloc", re.IGNORECASE)
RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class")
CONNECTS = ("socket.connect", "socket.bind", "socket.getaddrinfo")
PATHS = {
    "os.mkdir": (0, 2),
    "os.rmdir": (0, 1),
    "os.remove": (0, 1),
    "os.truncate": (0, None),
    "os.chmod": (0, 2),
    "os.chown": (0, 3),
    "os.utime": (0, 3),
    "os.link": (1, 3),
    "os.symlink": (1, 2),
    "os.mkfifo": (0, None),
}
"""Where, among the arguments of an audit event, is what is changed, and the directory that it is relative to"""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Hang(BaseException):
    """A case took longer than `SECONDS`."""


class Forbidden(BaseException):
    """A case wrote, ran or connected to what it may not."""


@dataclass
class Case:
    """One of them. What it has done is noted for whoever replays it."""

    target: str
    seed: int
    number: int
    folder: Path
    """Empty, and the only place that it may write to"""
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.target}/{self.seed}/{self.number}")

    def note(self, what: object) -> None:
        self.notes.append(str(what))


Run = Callable[[Case], str]
"""Does a case; returns how it ended: `accepted`, `refused` or `damaged`"""


@dataclass(frozen=True)
class Outcome:
    kind: str
    """How it ended, or what was bad about it"""
    seconds: float = 0.0
    resident: int = 0
    where: str = ""
    """The place in the code, by which failures are grouped"""
    text: str = ""

    @property
    def bad(self) -> bool:
        return self.kind not in ("accepted", "refused", "damaged")


class Unacceptable(Exception):
    """An end that is not documented: an exit code, a message without words, an escape sequence."""


# --- writes

_folder: str = ""
"""The folder of the case that runs; empty between cases"""
_violations: list[str] = []
_dir_fd: int | None = None
_real_open = os.open


def _open_recorded(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """`os.open`, whose audit event does not name the directory that a path is relative to."""
    global _dir_fd
    _dir_fd = dir_fd
    try:
        return _real_open(path, flags, mode, dir_fd=dir_fd)
    finally:
        _dir_fd = None


def _resolved(path: Any, dir_fd: int | None) -> str:
    path = os.fsdecode(path)
    if dir_fd is not None and dir_fd >= 0 and not os.path.isabs(path):
        path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _forbid(what: str) -> None:
    _violations.append(what)
    raise Forbidden(what)


def _check(path: Any, dir_fd: int | None, event: str) -> None:
    if isinstance(path, int) or path == os.devnull:
        return
    resolved = _resolved(path, dir_fd)
    if resolved != _folder and not resolved.startswith(_folder + os.sep):
        _forbid(f"{event} {resolved}")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _folder:
        return
    if event == "open":
        path, mode, flags = arguments
        writing = any(letter in mode for letter in "wax+") if isinstance(mode, str) else (flags or 0) & WRITING
        if writing:
            _check(path, _dir_fd, event)
    elif event in PATHS:
        where, fd = PATHS[event]
        _check(arguments[where], None if fd is None else arguments[fd], event)
    elif event == "os.rename":
        for place in (0, 1):
            _check(arguments[place], arguments[place + 2], event)
    elif event.startswith(RUNS) or event in CONNECTS:
        _forbid(f"{event} {arguments!r:.200}")


# --- limits


def _hang(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    raise Hang(f"more than {SECONDS:g} s of a processor, or {PATIENCE * SECONDS:g} s of a clock")


def install(bound: int = MEMORY) -> None:
    """For the rest of this process. bound: address space above what it has now."""
    os.open = _open_recorded
    sys.addaudithook(_watch)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _hang)
    limit = _status("VmSize") + bound
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _status(name: str) -> int:
    """Bytes, of /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024


def _forget_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def execute(run: Run, case: Case) -> Outcome:
    """One case under all limits."""
    global _folder
    clear(case.folder)
    _forget_peak()
    before, started = _status("VmRSS"), time.perf_counter()
    _violations.clear()
    faulthandler.dump_traceback_later(2 * PATIENCE * SECONDS, exit=True)
    _set_timers(SECONDS)
    _folder = os.path.realpath(case.folder)
    try:
        outcome = Outcome(run(case))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _set_timers(0)
        text = "".join(traceback.format_exception(error))
        outcome = Outcome(type(error).__name__, where=_place(error), text=text[-6000:])
    finally:
        _set_timers(0)
        faulthandler.cancel_dump_traceback_later()
        _folder = ""
    resident, seconds = _status("VmHWM") - before, time.perf_counter() - started
    if _violations and not outcome.bad:
        outcome = Outcome("Forbidden", where=_violations[0], text="\n".join(_violations))
    elif resident > RESIDENT and not outcome.bad:
        outcome = Outcome("memory", where=case.target, text=f"{resident / 2**20:.0f} MiB")
    return Outcome(outcome.kind, seconds, resident, outcome.where, outcome.text)


def _set_timers(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)


def clear(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def _place(error: BaseException) -> str:
    """The last line of whence's own that was being executed, and the kind of error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/whence/" in frame.filename] or frames
    if not own:
        return type(error).__name__
    name = own[-1].filename.rpartition("/whence/")[2]
    return f"{type(error).__name__} in {name}:{own[-1].lineno} {own[-1].name}"


# --- ends


def read(call: Callable[[], object], also: tuple[type[BaseException], ...] = ()) -> str:
    """What a reader does with an input. also: exceptions that it documents beside those of bad input."""
    try:
        call()
    except HANDLED as error:
        check_message(str(error))
        return "damaged" if isinstance(error, CorruptFileError) else "refused"
    except also:
        return "refused"
    return "accepted"


def check_message(text: str) -> None:
    if not text.strip() or ALLOCATION.search(text):
        raise Unacceptable(f"the message {text[:500]!r}")


class Stream(io.TextIOWrapper):
    """A standard stream as Python makes it: text that has no UTF-8 is an error on one, and escaped on the other."""

    def __init__(self, errors: str) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, "utf-8", errors, newline="", write_through=True)

    @property
    def text(self) -> str:
        return self.bytes.getvalue().decode()


@contextlib.contextmanager
def captured() -> Iterator[tuple[Stream, Stream]]:
    """Standard output and standard error."""
    out, err = Stream("strict"), Stream("backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def command(case: Case, words: list[str]) -> str:
    """A command line: no traceback, a known exit code, a message where there is one to give, nothing for a terminal."""
    from whence.cli.main import run

    case.note(words)
    with captured() as (out, err):
        code = run(list(words))
    printed, said = out.text, err.text
    if code == 130:  # training would have begun
        return "accepted"
    if code not in (0, 1, 2):
        raise Unacceptable(f"exit code {code} of {words}")
    if code == 2 and "whence: " not in said:
        raise Unacceptable(f"no message for exit code 2 of {words}")
    if "Traceback (most recent call last)" in said:
        raise Unacceptable(f"a traceback is printed by {words}: {said[-3000:]}")
    if code:
        check_message(said + printed)
    for text in (printed, said):
        if match := CONTROL.search(text):
            around = text[max(0, match.start() - 60) : match.end() + 20]
            raise Unacceptable(f"{match[0]!r} reaches the terminal, printed by {' '.join(words[:2])}: {around!r}")
    return ("accepted", "damaged", "refused")[code]
