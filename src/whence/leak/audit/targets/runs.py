"""Models of stored runs, and the same models untrained."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.leak.audit.target import AuditTarget
from whence.leak.audit.targets.pretrained import MEAN_TOKEN, with_mean_token
from whence.leak.run import LeakRun
from whence.models.capture import blocks
from whence.models.init import initialise
from whence.models.sequence import SequenceRun
from whence.random import Streams
from whence.store.runs import RunFolder
from whence.training.checkpoint import weights_of
from whence.training.config import AnyRun

ROWS = 64


def run_target(run: AnyRun, folder: RunFolder) -> AuditTarget:
    if isinstance(run, LeakRun):
        return leak_run_target(run, folder)
    if isinstance(run, SequenceRun):
        return sequence_run_target(run, folder)
    raise UserError(f"run: models of {run.kind} cannot be audited. Allowed: runs of leak or arena.")


def leak_run_target(run: LeakRun, folder: RunFolder | None = None, seed: int | None = None) -> AuditTarget:
    """With the weights of a stored run, or untrained, initialized with `seed`."""
    job = run.job()
    job.setup(Streams.of(run.seed if seed is None else seed), torch.device("cpu"))
    if folder is None:
        return job.audit_target()
    job.model.load_state_dict(weights_of(folder))
    return replace(job.audit_target(), untrained=lambda seed: leak_run_target(run, seed=seed))


def sequence_run_target(
    run: SequenceRun, folder: RunFolder | None, rows: int = ROWS, seed: int | None = None
) -> AuditTarget:
    """Predictions at masked tokens; the targets are those of the same model when nothing is masked.

    Without a folder, the model is initialized with `seed`.
    """
    if run.model.attention == "prefix":
        raise UserError("run: models with prefix attention cannot be audited. Allowed: causal, bidirectional.")
    batch = run.task.build().sample(torch.Generator().manual_seed(0), rows, run.train_length)
    model = run.build_model("cpu")
    if folder is None:
        initialise(model, Streams.of(run.seed if seed is None else seed).init)
    else:
        model.load_state_dict(weights_of(folder))
    if not isinstance(model.embedding, nn.Embedding):
        raise UserError("run: expected a model of token ids, got one of continuous inputs.")

    def call(ids: Tensor) -> Tensor:
        return model(ids, batch.positions)

    return AuditTarget(
        " · ".join(run.labels().values()),
        model,
        batch.inputs,
        with_mean_token(model.embedding, call),
        call,
        fitted=True,
        layers=tuple(blocks(model))[-len(model.blocks) :],
        untrained=(lambda seed: sequence_run_target(run, None, rows, seed)) if folder is not None else None,
        mask_description=MEAN_TOKEN,
    )
