"""Real processes: signals at any moment, several at once, a store that is taken away, a disk and a clock that fail."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.in_process import end_at
from tests.faults.subjects import STORE, Subject, with_processes
from tests.faults.trial import Child, Trial, finished, processes, results
from whence.execution.worker import GRACE_SECONDS
from whence.store import disk

MODULES = {"worker": b"whence.execution.worker", "job": b"whence.app.job", "server": b"whence.app.server"}
NOBODY = 65534
MIB = 2**20
ROOM = 80 * MIB
"""Of a disk that is filled later; whence starts nothing with less than 64 MiB"""


def real(subject: Subject) -> Callable[[], int]:
    def work() -> int:
        with_processes()
        return subject.perform()

    return work


def pids(trial: Trial, role: str) -> list[int]:
    found = []
    for pid in processes(trial.folder):
        with contextlib.suppress(OSError):
            if MODULES[role] in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def end_of_all(trial: Trial) -> None:
    """Workers without a driver end by themselves, and jobs end when they have ended."""
    deadline = time.monotonic() + GRACE_SECONDS + 10
    while left := processes(trial.folder):
        if time.monotonic() > deadline:
            trial.problem("hang", f"{len(left)} processes are left")
            return
        time.sleep(0.02)


def settle(trial: Trial, promised: dict[str, str] | None = None) -> None:
    """Whatever has happened: nothing finished is lost, and the same command goes on."""
    trial.check_kept(promised or {}, "afterwards")
    if trial.store.exists():
        trial.look("runs list", "runs verify")
    kept = results(trial.store)
    if trial.rng.random() < 0.15:
        trial.attempt("again-with-workers", real(trial.subject))
        end_of_all(trial)
    trial.go_on()
    trial.check_kept(kept, "after the same command")
    trial.verify()
    trial.check_outside()


# --- signals


def wait_for(trial: Trial, child: Child, happens: Callable[[], object], patience: float = 30.0) -> bool:
    deadline = time.monotonic() + patience
    while child.alive() and time.monotonic() < deadline:
        if happens():
            return True
    return False


def moment(trial: Trial, child: Child) -> None:
    """Any time, or while a file is being written, or between two checkpoints."""
    how = trial.rng.choice(("any time", "in a write", "in training", "in training"))
    trial.told += how
    if how == "any time":
        time.sleep(trial.rng.uniform(0, 4))
    elif how == "in a write":
        wait_for(trial, child, lambda: list(trial.store.glob(f"*/*/{disk.TEMPORARY}*")))
    else:
        wanted = trial.rng.randint(1, 100)
        name = f"runs/*/checkpoint-{wanted:09d}-*"
        wait_for(trial, child, lambda: time.sleep(0.002) or list(trial.store.glob(name)), patience=8)


def signalled(role: str, *signals: signal.Signals, pause: float = 0.0) -> Callable[[Trial, int], None]:
    """To the driver, which is given the command, to one of its workers, or to the process of its job."""

    def run(trial: Trial, number: int) -> None:
        child = trial.start("driver", real(trial.subject))
        moment(trial, child)
        reached = [child.pid] if role == "driver" else pids(trial, role)[:1]
        if not child.alive() or not reached:
            trial.skipped = "it had ended, or not begun"
        for each in signals:
            for pid in reached if child.alive() else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, each)
            time.sleep(trial.rng.uniform(0, pause))
        ended = trial.judge("driver", child.wait(), also=tuple(-each for each in signals))
        trial.told += f", exit code {ended.code}"
        end_of_all(trial)
        if ended.code == 0:
            trial.check_results("although the exit code was 0")
        settle(trial)

    return run


def orphaned(trial: Trial, number: int) -> None:
    """A worker is stopped and its driver killed: nobody else may write its run until it has gone."""
    child = trial.start("driver", real(trial.subject))
    wait_for(trial, child, lambda: list(trial.store.glob("runs/*/checkpoint-*")))
    workers = pids(trial, "worker")
    if not workers or not child.alive():
        trial.skipped = "it had ended"
        child.wait()
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    spared = finished(trial.store)
    ended = trial.attempt("beside", trial.subject.perform)
    if ended.code == 0 and workers:
        trial.problem("duplicated", "a run was written although another process had it")
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
    end_of_all(trial)
    trial.check_kept({}, "afterwards")
    if any(finished(trial.store).get(run) != stamps for run, stamps in spared.items()):
        trial.problem("duplicated", "a finished run has changed")
    settle(trial)


def together(count: int, *, overlapping: bool = False) -> Callable[[Trial, int], None]:
    """Several drivers on one store, of the same command or of one with another seed more."""

    def run(trial: Trial, number: int) -> None:
        others = trial.of.more_seeds if overlapping else trial.subject
        children = [
            trial.start(f"driver-{index}", real(others if index % 2 else trial.subject)) for index in range(count)
        ]
        for index, child in enumerate(children):
            trial.judge(f"driver-{index}", child.wait())
        end_of_all(trial)
        for path in trial.store.glob("runs/*/log.jsonl"):
            begun = path.read_bytes().count(b'"event":"started"') + path.read_bytes().count(b'"event":"resumed"')
            if begun != 1:
                trial.problem("duplicated", f"{path.parent.name} was begun {begun} times")
        settle(trial)

    return run


def app_ends(*signals: signal.Signals) -> Callable[[Trial, int], None]:
    """The app, or its server, while a job is running: the job ends as if nothing had happened."""

    def run(trial: Trial, number: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        words = ["app", "--no-browser", "--json", "--port", port, "--store", str(STORE)]

        def app() -> int:
            os.execv(sys.executable, [sys.executable, "-m", "whence", *words])

        whole = trial.start("app", app)
        wait_for(trial, whole, lambda: time.sleep(0.01) or whole.files[0].read_bytes())
        job = trial.start("driver", real(trial.subject))
        time.sleep(trial.rng.uniform(0, 3))
        role = trial.rng.choice(("app", "server"))
        for pid in [whole.pid] if role == "app" else pids(trial, "server"):
            os.kill(pid, signals[number % len(signals)])
        trial.told = f"{role}, {signals[number % len(signals)].name}"
        trial.judge("app", whole.wait(), also=tuple(-each for each in signals))
        if trial.judge("driver", job.wait()).code != 0:
            trial.problem("lost", "the job did not end well")
        end_of_all(trial)
        settle(trial)

    return run


# --- a store that changes under a command


def taken_away(trial: Trial, number: int) -> None:
    """A run's folder, a file in it or the whole store is moved or deleted in mid-run."""
    child = trial.start("driver", real(trial.subject))
    wait_for(trial, child, lambda: list(trial.store.glob("runs/*/checkpoint-*")))
    time.sleep(trial.rng.uniform(0, 0.3))
    running = [path.parent for path in trial.store.glob("runs/*/checkpoint-*")]
    what = ("run moved", "run deleted", "store moved", "file deleted", "locks deleted")[number % 5]
    trial.told = what
    aside = trial.folder / "out" / "aside"
    with contextlib.suppress(FileNotFoundError):
        if what == "store moved":
            trial.store.rename(aside)
        elif what == "locks deleted":
            for path in [*trial.store.rglob("lock"), *trial.store.rglob("turn")]:
                path.unlink()
        elif running and what == "file deleted":
            path = trial.rng.choice(sorted(running[0].iterdir()))
            trial.told += f": {path.name}"
            path.unlink()
        elif running:
            running[0].rename(aside)
            if what == "run deleted":
                shutil.rmtree(aside)
    ended = trial.judge("driver", child.wait())
    trial.told += f", exit code {ended.code}: {ended.err[-200:].decode(errors='replace')}"
    end_of_all(trial)
    if what == "store moved":
        if trial.store.exists():
            trial.store.rename(trial.folder / "out" / "new")
        aside.rename(trial.store)
    elif ended.code == 0:
        trial.check_results("although the exit code was 0")
    settle(trial)


# --- a machine that gives less


def limited(trial: Trial, number: int) -> None:
    """Files may only be so large (RLIMIT_FSIZE), or few may be open (RLIMIT_NOFILE)."""

    def work() -> int:
        if number % 2:
            os.closerange(3, 40)
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
            return trial.subject.perform()
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return real(trial.subject)()

    few, size = trial.rng.randint(5, 14), trial.rng.randint(100, 60_000)
    trial.told = f"{few} files" if number % 2 else f"{size} bytes"
    ended = trial.attempt("driver", work)
    end_of_all(trial)
    if ended.code == 0:
        trial.check_results("although the exit code was 0")
    settle(trial)


def interrupted_calls(trial: Trial, number: int) -> None:
    """Thousands of signals with a handler that does nothing."""

    def work() -> int:
        signal.signal(signal.SIGALRM, lambda number, frame: None)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        code = trial.subject.perform()
        signal.setitimer(signal.ITIMER_REAL, 0)
        return code

    if trial.attempt("driver", work).code != 0:
        trial.problem("stuck", "a signal without consequences ended the command")
    trial.check_results("after signals")
    settle(trial)


def closed(trial: Trial, number: int) -> None:
    """Standard input, output or error is closed, or its reader has gone."""
    how = ("stdin closed", "stdout closed", "stderr closed", "stdout without a reader", "stderr without a reader")[
        number % 5
    ]
    trial.told = how

    def work() -> int:
        stream = {"stdin": 0, "stdout": 1, "stderr": 2}[how.split()[0]]
        arguments = [sys.executable, "-m", "tests.faults.perform", trial.subject.name, str(trial.of.inputs)]
        if how.endswith("closed"):
            os.close(stream)
        else:
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing, stream)
        os.execv(sys.executable, arguments)

    ended = trial.attempt("driver", work, also=(120,))
    end_of_all(trial)
    if ended.code == 0:
        trial.check_results("although the exit code was 0")
    settle(trial)


def forbidden(trial: Trial, number: int) -> None:
    """Another user's store, or files of one's own that may not be read."""
    if os.geteuid() != 0:
        trial.skipped = "only root can become somebody else"
        return
    trial.attempt("killed", lambda: end_at(trial.rng.randrange(len(trial.of.calls)), trial.subject))
    paths = [trial.store, *trial.store.rglob("*")] if trial.store.exists() else []
    for path in paths if number % 2 else ():
        os.chown(path, NOBODY, NOBODY)
    hidden = trial.rng.choice(paths) if paths else trial.folder / "mine"
    modes = {hidden: hidden.stat().st_mode}
    hidden.chmod(0)
    trial.told = f"{'own' if number % 2 else 'foreign'} store, {hidden.relative_to(trial.folder)}"

    def work() -> int:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        codes = [trial.command(words) for words in ("runs list", "runs verify", "runs gc --yes", "runs repair --yes")]
        return max(trial.subject.perform(), *codes)

    trial.attempt("driver", work)
    for path, mode in modes.items():
        if path.exists():
            path.chmod(mode)
    for path in [trial.store, *trial.store.rglob("*")] if trial.store.exists() else ():
        os.chown(path, 0, 0)
    settle(trial)


@contextlib.contextmanager
def own_disk(trial: Trial, size: int) -> Iterator[bool]:
    """The store on a disk of its own; False where only the administrator may mount one."""
    trial.store.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(trial.store)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            end_of_all(trial)
            subprocess.run(["umount", str(trial.store)], check=True)


def fills_up(trial: Trial, number: int) -> None:
    """The disk is full at some moment."""
    with own_disk(trial, ROOM) as mounted:
        if not mounted:
            trial.skipped = "no disk could be mounted"
            return
        child = trial.start("driver", real(trial.subject))
        moment(trial, child)
        filler = trial.store / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for size in itertools.repeat(MIB):
                if file.write(bytes(size)) < size:
                    break
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
            while file.write(b"\0" * 512):
                pass
        ended = trial.judge("driver", child.wait())
        trial.told += f", exit code {ended.code}: {ended.err[-200:].decode(errors='replace')}"
        end_of_all(trial)
        filler.unlink(missing_ok=True)
        if ended.code == 0:
            trial.check_results("although the exit code was 0")
        settle(trial)


def read_only(trial: Trial, number: int) -> None:
    """A store on a disk that cannot be written: everything that reads works, everything else is refused."""
    with own_disk(trial, ROOM) as mounted:
        if not mounted:
            trial.skipped = "no disk could be mounted"
            return
        at = trial.rng.randrange(len(trial.of.calls))
        trial.attempt("killed", lambda: end_at(at, trial.subject))
        subprocess.run(["mount", "-o", "remount,ro", str(trial.store)], check=True)
        runs = [path.name for path in trial.store.glob("runs/*")]
        trial.look("runs list", "runs verify", "runs export", *(f"runs show {run}" for run in runs[:1]))
        words = ["runs gc --yes", "runs repair --yes --retrain", *(f"runs rm {run} --yes" for run in runs[:1])]
        for command in words:
            trial.attempt(command.split()[1], lambda command=command: trial.command(command))
        trial.attempt("same", trial.subject.perform)
        subprocess.run(["mount", "-o", "remount,rw", str(trial.store)], check=True)
        settle(trial)


# --- clocks


def clock(trial: Trial, number: int) -> None:
    """It jumps by years, stands still, or starts in 1970."""
    how = ("jumps", "stands still", "1970")[number % 3]
    year = 365.25 * 86400
    real_time = time.time
    jumps = [0.0, -year, 10 * year, -0.5, 3600.0]

    def now() -> float:
        if how == "stands still":
            return 1.7e9
        return 0.0 if how == "1970" else real_time() + trial.rng.choice(jumps)

    def work() -> int:
        time.time = now
        time.time_ns = lambda: int(now() * 1e9)
        return trial.subject.perform()

    trial.told = how
    if trial.rng.random() < 0.5:
        trial.attempt("killed", lambda: end_at(trial.rng.randrange(len(trial.of.calls)), trial.subject))
    if trial.attempt("driver", work).code != 0:
        trial.problem("stuck", "the time of day ended the command")
    trial.check_results("after jumps of the clock")
    settle(trial)
