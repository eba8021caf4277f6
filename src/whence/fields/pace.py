"""How long a step takes on this machine."""

from __future__ import annotations

import time

import torch

from whence.fields.run import Run
from whence.runs.loop import make_optimizer
from whence.runs.streams import Streams, ambient_kept, generator

SECONDS = 4.0
"""Of steps that are timed, after two that warm up."""


def pace(run: Run, threads: int | None = None) -> tuple[float, float]:
    """Seconds per step of training, and per evaluation."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with ambient_kept():
            return _steps(run)
    finally:
        torch.set_num_threads(before)


def _steps(run: Run) -> tuple[float, float]:
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
