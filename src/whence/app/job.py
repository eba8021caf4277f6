"""The process of one job: `python -m whence.app.job FOLDER`."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from whence.app.jobs import (
    ActionRequest,
    CompareRequest,
    Job,
    JobEnd,
    JobFailure,
    JobRequest,
    JobStart,
    TrainRequest,
    check_request,
)
from whence.errors import UserError
from whence.instruments import instrument
from whence.store import disk
from whence.store.lock import LockedError, lock_file, lock_folder
from whence.store.records import write_as
from whence.store.runs import Store, load_runs
from whence.training.config import AnyRun

if TYPE_CHECKING:
    from whence.experiments.instrument import OnProgress

FAILED = ("failed", "crashed", "busy")
stopped = threading.Event()


def _stop(number: int, frame: FrameType | None) -> None:
    """Recorded, because a library that is being imported may catch the exception and fail in another way."""
    stopped.set()
    signal.default_int_handler(number, frame)


def main(folder: Path) -> None:
    job = Job(folder)
    signal.signal(signal.SIGINT, _stop)  # a parent in the background may have ignored it
    with suppress(LockedError), lock_folder(folder) as lock:  # unless another process has just started it
        log = disk.open_to_append(_own_file(job, folder / "log.txt"), 0)
        for stream in (1, 2):
            os.dup2(log, stream)
        end = _run(job)
        if end.state != "finished" and stopped.is_set():
            end = JobEnd(state="stopped")
        lock.check()
        write_as(folder / "end.json", end)


def _run(job: Job) -> JobEnd:
    try:
        submission = job.submission
        check_request(submission.request)
        with (
            os.fdopen(disk.open_to_append(_own_file(job, job.path / "progress.txt"), 0), "w") as progress,
            ExitStack() as held,
        ):
            start = JobStart(process=os.getpid(), time=time.time())
            if submission.exclusive:
                write_as(job.path / "started.json", start)
                # held until the job ends; the system releases it if the process is killed
                held.enter_context(lock_file(_own_file(job, job.path.parent / "turn"), patience=math.inf))
            write_as(job.path / "started.json", start.model_copy(update={"begun": time.time()}))

            def on_progress(message: str) -> None:
                print(" ".join(message.split()), file=progress, flush=True)

            return execute(submission.request, Store(job.path.parents[1]), on_progress)
    except KeyboardInterrupt:
        return JobEnd(state="stopped")
    except UserError as error:
        return JobEnd(state="refused", failure=JobFailure(message=str(error), field=error.field))
    except Exception as error:  # also a job that another program has written
        traceback.print_exc()
        return JobEnd(state="failed", failure=JobFailure(message=disk.explain(error)))


def _own_file(job: Job, path: Path) -> Path:
    """The path of a file to write. Anything else in its place, such as a link or a directory, is set aside."""
    if disk.kind_of(path) and not disk.is_own_file(path):
        Store(job.path.parents[1]).set_aside(path)
    return path


def execute(request: JobRequest, store: Store, on_progress: OnProgress) -> JobEnd:
    """Execute a request that has been checked. Results go to the store."""
    if isinstance(request, ActionRequest):
        action = next(each for each in instrument(request.instrument).actions if each.verb == request.verb)
        action.run(action.config.read(request.config), store, on_progress)
        return JobEnd(state="finished")
    # imported late, because it takes seconds and the app waits until the job reports its start
    from whence.execution.options import ExecutionOptions
    from whence.experiments.comparison import execute_runs, run_comparison

    problems: Sequence[str] = ()
    if isinstance(request, CompareRequest):
        compared = instrument(request.instrument)
        config = compared.config.read(request.config)
        result = run_comparison(compared, config, store, on_progress=on_progress)
        ends, problems = result.ends, result.problems
    elif isinstance(request, TrainRequest):
        run = instrument(request.instrument).run.read(request.config)
        ends = execute_runs([run], store, ExecutionOptions(checkpoint_interval=request.checkpoint_interval))
    else:
        ends = execute_runs(_stored_runs(request.runs, store, on_progress), store, ExecutionOptions())
    counts = Counter(ends.values())
    if counts["interrupted"]:
        return JobEnd(state="stopped")
    if failed := [f"{counts[end]} {end}" for end in FAILED if counts[end]]:
        problems = [f"{', '.join(failed)} of {len(ends)} runs.", *problems]
    if problems:
        return JobEnd(state="failed", failure=JobFailure(message="\n".join(problems)))
    return JobEnd(state="finished")


def _stored_runs(ids: Sequence[str], store: Store, on_progress: OnProgress) -> list[AnyRun]:
    """Those that can be read."""
    runs, left_out = load_runs(store, ids)
    problems = [f"{run_id} cannot be resumed: {problem}" for run_id, problem in left_out.items()]
    for problem in problems:
        on_progress(problem)
    if not runs:
        raise UserError("\n".join(problems), field="run")
    return runs


if __name__ == "__main__":
    main(Path(sys.argv[1]))
