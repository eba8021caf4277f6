"""How many steps fit into some minutes on this machine."""

from __future__ import annotations

import time

import torch

from whence.fields.run import FieldsRun
from whence.store.files import CorruptFileError, canonical, digest, read_sealed, write_sealed
from whence.store.runs import Store
from whence.training.streams import Streams, generator, preserve_rng_state
from whence.training.trainer import make_optimizer

SECONDS = 4.0
"""Of steps that are timed, after two that warm up."""


def for_minutes(run: FieldsRun, minutes: float, store: Store, threads: int | None = None) -> tuple[FieldsRun, str]:
    """The run with as many steps as fit, and how that was found, in words.

    The answer is kept in the store: the same question means the same run, to be gone on with or found finished.
    """
    question = {"run": {**run.document(), "training": {**run.training.model_dump(), "steps": None}}, "minutes": minutes}
    name, known = digest(canonical(question)), _known(store)
    steps, how = known.get(name), "as worked out before"
    if steps is None:
        per_step, per_evaluation = pace(run, threads)
        left = 60 * minutes - per_evaluation * (run.training.evaluations + 1)
        steps = max(run.training.evaluations, int(left / per_step))
        steps = int(float(f"{steps:.2g}"))  # rounded: the last steps mean nothing, the number should read well
        how = f"{1000 * per_step:.0f} ms each"
        write_sealed(store.paces, {**known, name: steps})
    timed = type(run).read({**run.model_dump(), "training": {**run.training.model_dump(), "steps": steps}})
    return timed, f"{steps} steps in about {minutes:g} minutes ({how})"


def _known(store: Store) -> dict[str, int]:
    try:
        return read_sealed(store.paces)
    except (OSError, CorruptFileError):  # then it is measured anew
        return {}


def pace(run: FieldsRun, threads: int | None = None) -> tuple[float, float]:
    """Seconds per step of training, and per evaluation."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with preserve_rng_state():
            return _steps(run)
    finally:
        torch.set_num_threads(before)


def _steps(run: FieldsRun) -> tuple[float, float]:
    job, streams = run.job(), Streams.of(run.seed)
    job.setup(streams, torch.device("cpu"))
    optimizer = job.optimizer(run.training) or make_optimizer(job.model, run.training)
    times: list[float] = []
    while len(times) < 3 or sum(times[2:]) < SECONDS:
        started = time.perf_counter()
        job.step(generator(streams.data, len(times)))[0].backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - started)
    job.model.eval()
    with torch.no_grad():
        started = time.perf_counter()
        job.evaluate(streams)
    return sum(times[2:]) / len(times[2:]), time.perf_counter() - started
