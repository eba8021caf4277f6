"""Jobs of the app, each in a process of its own that continues when the tab or the app is closed.

<store>/jobs/<id>/job.json      sealed   the request, a title, where its results are shown
                  started.json  sealed   process and time of the latest start; when it stopped waiting
                  progress.txt           one line per step of the work
                  log.txt                output of libraries, and tracebacks
                  end.json      sealed   how it ended, and why
<store>/jobs/turn               empty    locked by the one job that trains: two at once would slow each other down

The folder of a job is locked while its process lives, however that ends.
The id of a job is the content hash of its request. Results go where the command line puts them: runs, artifacts and
saved configurations of the store. The process is `whence.app.job`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, JsonValue

from whence.config import Config
from whence.errors import UserError
from whence.instruments import PLACES
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import canonical, digest
from whence.store.lock import is_locked
from whence.store.records import LONGEST_TEXT, Labels, Text, Time, read_as, shortened, write_as
from whence.store.runs import ID, Store

State = Literal["waiting", "running", "finished", "stopped", "refused", "failed", "interrupted"]
ALIVE: tuple[State, ...] = ("waiting", "running")
ACTIONS = {("leak", "audit"), ("features", "collect"), ("fields", "analyze")}
"""Actions that a job may run. Others write a file of any name, which a store from elsewhere must not choose."""
LONGEST_PROGRESS = 4000
Document = dict[str, JsonValue]
D = TypeVar("D", bound=Config)


InstrumentName = Annotated[str, Field(pattern=f"^({'|'.join(PLACES)})$")]


class CompareRequest(Config):
    """Run a comparison."""

    kind: Literal["compare"] = "compare"
    instrument: InstrumentName
    config: Document
    """As JSON, because the class that parses it takes seconds to import and a list of jobs does not need it"""


class TrainRequest(Config):
    """Train one model."""

    kind: Literal["train"] = "train"
    instrument: InstrumentName
    config: Document
    checkpoint_interval: float = Field(default=20.0, ge=0, le=1e9)
    """Seconds"""


class ActionRequest(Config):
    """Measure something, by an action of an instrument."""

    kind: Literal["action"] = "action"
    instrument: InstrumentName
    verb: str
    config: Document


class ResumeRequest(Config):
    """Resume runs."""

    kind: Literal["resume"] = "resume"
    runs: tuple[Annotated[str, Field(pattern=f"^{ID.pattern}$")], ...] = Field(min_length=1)


JobRequest = Annotated[CompareRequest | TrainRequest | ActionRequest | ResumeRequest, Field(discriminator="kind")]
"""All kinds of jobs. A store may come from elsewhere, and nothing in it may make this machine run other code."""


class Submission(Config):
    """A request with what lists show of it."""

    request: JobRequest
    title: Text
    link: Labels
    """Query parameters of the results on the page of the instrument"""
    exclusive: bool
    """Runs alone among such jobs and resumes after a stop; other jobs start over"""


class JobStart(Config):
    process: Annotated[int, Field(ge=2, le=2**31)]
    """Never 0 or 1, nor a negative number: those would stand for groups of processes"""
    time: Time
    begun: Time | None = None
    """None while it waits for its turn"""


class JobFailure(Config):
    message: Annotated[str, BeforeValidator(shortened), Field(max_length=LONGEST_TEXT)]
    field: Text | None = None


class JobEnd(Config):
    state: Literal["finished", "stopped", "refused", "failed"]
    time: Time = Field(default_factory=time.time)
    failure: JobFailure | None = None


@dataclass(frozen=True)
class Job:
    """One of them, in its folder."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def alive(self) -> bool:
        return is_locked(self.path)

    @property
    def submission(self) -> Submission:
        """`CorruptFileError` unless it is one: the store may come from elsewhere, or from another version."""
        path = self.path / "job.json"
        submission = read_as(Submission, path)
        if job_id(submission.request) != self.id:
            raise CorruptFileError(path, "the request does not match the id in the name of its folder")
        return submission

    @property
    def started(self) -> JobStart | None:
        return _read(self.path / "started.json", JobStart)

    @property
    def state(self) -> State:
        if self.alive:
            return "running" if (start := self.started) and start.begun else "waiting"
        end = _read(self.path / "end.json", JobEnd)
        return end.state if end else "interrupted"

    @property
    def failure(self) -> JobFailure | None:
        """Why the job was refused or failed."""
        end = _read(self.path / "end.json", JobEnd)
        return end.failure if end else None

    @property
    def progress(self) -> list[str]:
        """The last steps of the job; the current one is the last."""
        try:
            with disk.open_file(self.path / "progress.txt") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_PROGRESS))
                return file.read(LONGEST_PROGRESS).decode(errors="replace").splitlines()
        except (OSError, CorruptFileError):
            return []

    def clear(self) -> None:
        """Set aside entries that are not files, because a file could not replace them."""
        for path in disk.entries(self.path):
            if disk.kind_of(path) != "a file":
                Store(self.path.parents[1]).set_aside(path)

    def start(self) -> None:
        """Start the process, which resumes where an earlier one stopped. Returns when it has started."""
        if self.alive:
            raise UserError("job: this job is already running.")
        Store(self.path.parents[1]).place("jobs")  # refuses a link
        self.clear()
        check_request(self.submission.request)
        signs = [self.path / "started.json", self.path / "end.json"]
        for stale in signs:
            disk.remove_tree(stale)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "whence.app.job", str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals to the app do not reach it
        )
        threading.Thread(target=process.wait, daemon=True).start()
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline and not any(map(disk.kind_of, signs)):
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop like Ctrl-C: runs write a checkpoint first."""
        if self.alive and (start := self.started):
            with suppress(ProcessLookupError):
                os.kill(start.process, signal.SIGINT)


def submit(
    request: JobRequest, store: Store, *, title: str, link: Mapping[str, str] | None = None, exclusive: bool = True
) -> Job:
    """Start a job. A request that was submitted before resumes it; a running job is left alone."""
    check_request(request)
    store.prepare()
    job = Job(_folder(store) / job_id(request))
    try:
        disk.make_directory(job.path)
    except CorruptFileError:
        store.set_aside(job.path)
        disk.make_directory(job.path)
    if job.alive:
        return job
    job.clear()
    submission = Submission(request=request, title=shortened(title), link=dict(link or {}), exclusive=exclusive)
    write_as(job.path / "job.json", submission)
    job.start()
    return job


def job_id(request: JobRequest) -> str:
    """The same request is the same job."""
    return digest(canonical(request.model_dump(mode="json")))[:12]


def check_request(request: JobRequest) -> None:
    """Refuse models that are code, and actions that are not in `ACTIONS`."""
    if isinstance(request, ActionRequest) and (request.instrument, request.verb) not in ACTIONS:
        raise UserError(f"job: '{request.instrument} {request.verb}' is available on the command line only.")
    if ".py:" in canonical(request.model_dump(mode="json")):
        raise UserError("job: FILE.py:FUNCTION runs code and is available on the command line only.")


def jobs(store: Store, **wanted: str) -> list[Job]:
    """Jobs whose request has these fields (kind, instrument, verb), the latest start first."""
    matches: list[tuple[float, Job]] = []
    for path in disk.entries(_folder(store)):
        if ID.fullmatch(path.name) and (job := _existing(path)):
            request, start = job.submission.request, job.started
            if all(getattr(request, name, None) == value for name, value in wanted.items()):
                matches.append((start.time if start else 0.0, job))
    return [job for _, job in sorted(matches, key=lambda match: -match[0])]


def find_job(request: JobRequest, store: Store) -> Job | None:
    """The job of this request, or None if it was never submitted."""
    return _existing(_folder(store) / job_id(request))


def _existing(path: Path) -> Job | None:
    """None if it cannot be read."""
    job = Job(path)
    with suppress(OSError, CorruptFileError):
        return job if job.submission else None
    return None


def _folder(store: Store) -> Path:
    return store.place("jobs")


def _read(path: Path, document: type[D]) -> D | None:
    with suppress(OSError, CorruptFileError):
        return read_as(document, path)
    return None
