"""A masked model that whence has trained, or is about to."""

from __future__ import annotations

from dataclasses import replace

import torch

from whence.leak.audit.target import AuditTarget
from whence.leak.run import LeakRun
from whence.random import Streams
from whence.store.runs import RunFolder
from whence.training.checkpoint import weights_of


def leak_run_target(run: LeakRun, folder: RunFolder | None = None, seed: int | None = None) -> AuditTarget:
    """With the weights of a stored run, or untrained, initialized with `seed`."""
    job = run.job()
    job.setup(Streams.of(run.seed if seed is None else seed), torch.device("cpu"))
    if folder is None:
        return job.audit_target()
    job.model.load_state_dict(weights_of(folder))
    return replace(job.audit_target(), untrained=lambda seed: leak_run_target(run, seed=seed))
