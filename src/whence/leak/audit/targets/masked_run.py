"""A masked model that whence has trained, or is about to."""

from __future__ import annotations

from dataclasses import replace

import torch

from whence.leak.audit.target import Subject
from whence.leak.run import LeakRun
from whence.random import Streams
from whence.store.runs import RunFolder
from whence.training.checkpoint import weights_of


def masked_subject(run: LeakRun, folder: RunFolder | None = None, seed: int | None = None) -> Subject:
    """With the weights of a stored run, or untrained, initialized with `seed`."""
    job = run.job()
    job.setup(Streams.of(run.seed if seed is None else seed), torch.device("cpu"))
    if folder is None:
        return job.subject()
    job.model.load_state_dict(weights_of(folder))
    return replace(job.subject(), untrained=lambda seed: masked_subject(run, seed=seed))
