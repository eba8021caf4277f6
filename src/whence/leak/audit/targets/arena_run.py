"""A model that the arena has trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.leak.audit.target import AuditTarget
from whence.leak.audit.targets.mean_token import MEAN_TOKEN, with_mean_token
from whence.models.capture import blocks
from whence.models.init import initialise
from whence.random import Streams
from whence.store.runs import RunFolder
from whence.training.checkpoint import weights_of
from whence.training.config import RunConfig

ROWS = 64


def arena_run_target(
    run: RunConfig, folder: RunFolder | None, rows: int = ROWS, seed: int | None = None
) -> AuditTarget:
    """Predictions at masked tokens; the target are those of the same model when nothing is masked.

    Without a folder, the model is initialized with `seed`. The run is known by what it offers, not by its class:
    instruments do not know each other.
    """
    if run.model.attention == "prefix":  # type: ignore[attr-defined]
        raise UserError(
            "run: models with prefix attention cannot be audited. Allowed: causal, bidirectional.", field="run"
        )
    task, length = run.task.build(), run.train_length  # type: ignore[attr-defined]
    batch = task.sample(torch.Generator().manual_seed(0), rows, length)
    model: nn.Module = run.build_model("cpu")  # type: ignore[attr-defined]
    if folder is None:
        initialise(model, Streams.of(run.seed if seed is None else seed).init)
    else:
        model.load_state_dict(weights_of(folder))

    def call(ids: Tensor) -> Tensor:
        return model(ids, batch.positions)

    return AuditTarget(
        " · ".join(run.labels().values()),
        model,
        batch.inputs,
        with_mean_token(model.embedding, call),  # type: ignore[arg-type]
        call,
        fitted=True,
        layers=tuple(blocks(model))[-len(model.blocks) :],  # type: ignore[arg-type]
        untrained=(lambda seed: arena_run_target(run, None, rows, seed)) if folder is not None else None,
        mask_description=MEAN_TOKEN,
    )
