"""What the app has asked for: a command of whence in a process of its own, which outlives the tab and the app.

<store>/jobs/<id>/job.json     sealed   the command, its config, a title
                  config.json           the spec, as the command reads it
                  started.json sealed   process and time of the latest start; whether it waits for its turn
                  end.json     sealed   its exit code, once it has ended
                  out.json              the JSON document that it printed
                  err.txt               what it said meanwhile
                  lock         empty    held while its process lives, however that ends
<store>/jobs/turn              empty    held by the one job that trains: two at once would only slow each other down
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from whence.errors import UserError
from whence.store.files import CorruptFileError, canonical, digest, read_document, read_sealed, write_sealed
from whence.store.runs import ID, RunFolder, Store

State = Literal["waiting", "running", "finished", "stopped", "refused", "failed", "interrupted"]
COMMANDS = {
    ("arena",),
    ("train",),
    ("leak", "audit"),
    ("leak", "compare"),
    ("features", "collect"),
    ("features", "bench"),
    ("fields", "train"),
    ("fields", "ablate"),
    ("runs", "list"),
    ("runs", "resume"),
}
"""What a job may be. A store may come from elsewhere, and nothing in it may make this machine run what it likes."""
ASKED: dict[str, Any] = {
    "words": list,
    "config": dict | None,
    "title": str,
    "about": str,
    "where": dict,
    "trains": bool,
}
ALIVE: tuple[State, ...] = ("waiting", "running")
LONGEST_ERROR = 4000


@dataclass(frozen=True)
class Job:
    """One of them, in its folder."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def lock(self) -> RunFolder:
        """A job is locked as a run is."""
        return RunFolder(self.path)

    @property
    def alive(self) -> bool:
        return self.lock.is_locked()

    def asked(self) -> dict[str, Any]:
        """The store may come from elsewhere, or from another version."""
        if self.path.is_symlink() or self.path.parent.is_symlink():
            raise CorruptFileError(self.path, "leads out of the store")
        found = read_sealed(self.path / "job.json")
        if any(not isinstance(found.get(name), kind) for name, kind in ASKED.items()):
            raise CorruptFileError(self.path / "job.json", "not what a job looks like")
        return found

    def started(self) -> dict[str, Any]:
        return _read(self.path / "started.json")

    @property
    def state(self) -> State:
        if self.alive:
            return "running" if self.started().get("begun") else "waiting"
        code = _read(self.path / "end.json").get("code")
        ends: dict[Any, State] = {None: "interrupted", 0: "finished", 130: "stopped", 2: "refused"}
        return ends.get(code, "failed")

    def result(self) -> dict[str, Any] | None:
        """What the command printed, if it came to that."""
        try:
            return json.loads(read_document(self.path / "out.json"))
        except (OSError, ValueError, RecursionError, CorruptFileError):
            return None

    def said(self) -> str:
        """The last of what it said on standard error."""
        try:
            with (self.path / "err.txt").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_ERROR))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def start(self) -> None:
        """Its process begins, or goes on where it stopped. Returns when it is there."""
        if self.alive:
            raise UserError("job: this is running already.", field="job")
        check(self.asked()["words"])
        for stale in ("end.json", "started.json"):
            (self.path / stale).unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "whence.app.job", str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what is meant for the app does not reach it
        )
        threading.Thread(target=process.wait, daemon=True).start()
        deadline = time.monotonic() + 10
        while not any((self.path / sign).exists() for sign in ("started.json", "end.json")) and process.poll() is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)

    def stop(self) -> None:
        """As Ctrl-C does: what runs writes a checkpoint first."""
        if self.alive and (process := self.started().get("process")):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGINT)


def submit(
    store: Store,
    words: Sequence[str],
    config: Mapping[str, Any] | None = None,
    *,
    title: str,
    about: str = "",
    where: Mapping[str, str] | None = None,
    trains: bool = True,
) -> Job:
    """Start `whence WORDS --config … --store … --json`. The same again goes on; what is running is left alone.

    about: by what name it is found again, beside its id. where: it is shown, on the page of its instrument, as
    parameters of an address. trains: it waits until no other job is training.
    """
    check(words)
    store.prepare()
    asked = _asked(words, config)
    job = Job(_folder(store) / job_id(words, config))
    if job.path.is_symlink() or job.path.parent.is_symlink():
        raise UserError(f"job: {str(job.path)!r} leads out of the store. Allowed: a folder, or nothing.", field="job")
    job.path.mkdir(parents=True, exist_ok=True)
    if job.alive:
        return job
    facts = {"title": title, "about": about, "where": dict(where or {}), "trains": trains}
    write_sealed(job.path / "job.json", {**asked, **facts})
    job.start()
    return job


def job_id(words: Sequence[str], config: Mapping[str, Any] | None = None) -> str:
    """From what is asked for: the same again is the same job."""
    return digest(canonical(_asked(words, config)))[:12]


def _asked(words: Sequence[str], config: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"words": list(words), "config": dict(config) if config is not None else None}


def check(words: Sequence[str]) -> None:
    """Commands of the list above, and no model that is code."""
    known = any(tuple(words[: len(command)]) == command for command in COMMANDS)
    if not known or any(".py:" in word for word in words):
        raise UserError(f"job: 'whence {' '.join(words)}' can be run from a terminal only.", field="job")


def jobs(store: Store, *words: str) -> list[Job]:
    """Those whose command begins with these words, the latest start first."""
    found: list[tuple[float, Job]] = []
    folder = _folder(store)
    for path in folder.iterdir() if folder.is_dir() else ():
        job = Job(path)
        try:
            if ID.fullmatch(job.id) and job.asked()["words"][: len(words)] == list(words):
                found.append((job.started().get("time", 0.0), job))
        except (OSError, CorruptFileError):
            continue
    return [job for _, job in sorted(found, key=lambda item: -item[0])]


def job_about(store: Store, about: str) -> Job | None:
    """The latest that goes by this name."""
    return next((job for job in jobs(store) if job.asked()["about"] == about), None)


def _folder(store: Store) -> Path:
    return store.root / "jobs"


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path)
    except (OSError, CorruptFileError):
        return {}
