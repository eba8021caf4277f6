"""Where a trained run looks: attention weights of every layer and head on its test data."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from whence.arena.run import ArenaRun, answers, evaluation_batches
from whence.experiments.table import Table
from whence.models.capture import capture
from whence.random import Streams, derive, preserve_rng_state
from whence.store.files import CorruptFileError
from whence.store.runs import RunFolder, Store
from whence.tasks.base import Batch
from whence.training.checkpoint import weights_of

LONGEST_MAP = 96
"""Tokens up to which a map is drawn: beyond that nobody could read it."""


@dataclass(frozen=True)
class Maps:
    """Attention at the training length."""

    weights: Tensor
    """(layers, examples, heads, queries, keys)."""
    distance: Tensor
    """(layers, heads): how far back a token looks on average, in places, over the whole batch."""
    inputs: Tensor
    """(examples, tokens)."""


def load_model(run: ArenaRun, folder: RunFolder) -> torch.nn.Module:
    """The finished model, after a check that its file is what the run wrote."""
    model = run.build_model("cpu")
    model.load_state_dict(weights_of(folder))
    return model.eval()


def attention_maps(run: ArenaRun, folder: RunFolder, examples: int = 3) -> Maps | None:
    """None for a model without attention, or one whose sequences are too long to look at."""
    if run.task.build().tokens(run.train_length) > LONGEST_MAP:
        return None
    streams = Streams.of(run.seed)
    batch: Batch = next(evaluation_batches(run, streams, "test", run.train_length))
    with torch.no_grad(), preserve_rng_state():
        model = load_model(run, folder)
        torch.manual_seed(derive(streams.evaluation, "model"))  # positions that are drawn, as in an evaluation
        with capture(model, hidden=()) as cache:
            answers(model, batch)
    layers = [weights for weights in cache.attention.values() if isinstance(weights, Tensor)]
    if not layers:
        return None
    weights = torch.stack(layers)
    positions = batch.positions.float()
    away = (positions[0][:, None] - positions[0][None, :]).abs()
    distance = (weights * away).sum(-1).mean((1, 3))
    return Maps(weights[:, :examples], distance, batch.inputs[:examples])


def maps_of(table: Table[ArenaRun], store: Store) -> dict[str, Maps]:
    """Of one seed per encoding; what cannot be read is left out."""
    found: dict[str, Maps] = {}
    for row in table.rows:
        for result in row.finished[:1]:
            with suppress(OSError, CorruptFileError, RuntimeError):  # gone, damaged, or of another version's model
                maps = attention_maps(result.run, store.folder(result.run.id))
                if maps is not None:
                    found[row.name] = maps
    return found
