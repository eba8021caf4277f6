"""The process of one job: `python -m whence.app.job FOLDER`. It runs a command of whence as a terminal would."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from whence.experiments.jobs import Job, check
from whence.store.files import write_atomically, write_sealed
from whence.store.runs import RunLockedError

stopped = threading.Event()


def _stop(number: int, frame: Any) -> None:
    """Remembered, because a library that is being loaded may swallow it and fail in another way."""
    stopped.set()
    signal.default_int_handler(number, frame)


def main(folder: Path) -> None:
    job = Job(folder)
    signal.signal(signal.SIGINT, _stop)  # a parent in the background may have ignored it
    try:
        with job.lock.lock():
            _redirect(1, folder / "out.json")
            _redirect(2, folder / "err.txt")
            code = _run(job)
            write_sealed(folder / "end.json", {"code": 130 if code and stopped.is_set() else code, "time": time.time()})
    except RunLockedError:
        return  # somebody else has just started it


def _run(job: Job) -> int:
    asked = job.asked()
    started = {"process": os.getpid(), "time": time.time()}
    arguments = [*asked["words"], "--store", str(job.path.parents[1]), "--json"]
    if asked["config"] is not None:
        write_atomically(job.path / "config.json", json.dumps(asked["config"], indent=1).encode())
        arguments += ["--config", str(job.path / "config.json")]
    sys.argv = ["whence", *arguments]
    try:
        check(asked["words"])
        if asked["trains"]:
            write_sealed(job.path / "started.json", started)
            _wait_for_turn(job.path.parent / "turn")
        write_sealed(job.path / "started.json", {**started, "begun": time.time()})
        from whence.cli import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
    except SystemExit as leaving:
        return int(leaving.code or 0)
    except Exception:  # also a job that the app would not have made
        traceback.print_exc()
        return 1


def _wait_for_turn(path: Path) -> None:
    """Held until this process ends: nobody has to give it back."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    fcntl.flock(handle, fcntl.LOCK_EX)


def _redirect(handle: int, path: Path) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    os.dup2(target, handle)
    os.close(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
