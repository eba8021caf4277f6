"""Attention weights of a trained run on its test data. They are measured once and stored as an artifact."""

from __future__ import annotations

import base64
from functools import partial

import torch
from torch import Tensor

from whence.arena.run import ArenaRun, answers, evaluation_batches
from whence.config import Config
from whence.experiments.instrument import Measurement
from whence.models.capture import capture
from whence.models.sequence import SequenceModel
from whence.random import Streams, derive, preserve_rng_state
from whence.store.artifacts import ArtifactKind
from whence.store.disk import CorruptFileError
from whence.store.runs import RunFolder, Store
from whence.tasks import Batch
from whence.training.checkpoint import weights_of

LONGEST_MAP = 96
"""Largest number of tokens for which maps are measured; longer maps are not readable."""
EXAMPLES = 3


class AttentionRequest(Config):
    """The id of the run and the number of test sequences."""

    run: str
    examples: int = EXAMPLES


class AttentionMaps(Config):
    """Attention at the training length. For a model without attention, `layers` is 0."""

    layers: int = 0
    examples: int = 0
    heads: int = 0
    tokens: int = 0
    weights: str = ""
    """(layers, examples, heads, queries, keys) as bytes in base64: 255 is a weight of 1"""
    distance: tuple[tuple[float, ...], ...] = ()
    """By layer and head, the mean distance between query and key, weighted by attention, over the whole test batch"""
    inputs: tuple[tuple[int, ...], ...] = ()
    """By example, the tokens"""
    answer_keys: tuple[tuple[int, ...], ...] = ()
    """By example and query, the token that holds the answer, −1 where none is asked; empty if the task declares none"""
    on_answer: tuple[tuple[float, ...], ...] = ()
    """By layer and head, the mean attention weight on the answer key, over the whole test batch; empty likewise"""


ATTENTION = ArtifactKind("attention", AttentionRequest, AttentionMaps)


def attention_measurement(run: ArenaRun, store: Store) -> Measurement[AttentionRequest, AttentionMaps]:
    label = f"Measuring attention of {run.model.position_label}"
    compute = partial(attention_maps, run, store.folder(run.id))
    return Measurement(ATTENTION, AttentionRequest(run=run.id), label, compute)


def load_model(run: ArenaRun, folder: RunFolder) -> SequenceModel:
    """The trained model in evaluation mode. Raises CorruptFileError if its file is not what the run wrote."""
    model = run.build_model("cpu")
    try:
        model.load_state_dict(weights_of(folder))
    except RuntimeError as error:
        raise CorruptFileError(
            folder.weights, f"not the weights of this model ({str(error).splitlines()[0]})"
        ) from None
    return model.eval()


def attention_weights(run: ArenaRun, folder: RunFolder) -> tuple[Tensor, Batch] | None:
    """Weights (layers, sequences, heads, queries, keys) on a batch of test data; None for a model without attention."""
    streams = Streams.of(run.seed)
    batch = next(evaluation_batches(run, streams, "test", run.train_length))
    with torch.no_grad(), preserve_rng_state():
        model = load_model(run, folder)
        torch.manual_seed(derive(streams.evaluation, "model"))  # positions that are drawn, as in an evaluation
        with capture(model, hidden=()) as cache:
            answers(model, batch)
    length = batch.inputs.shape[1]
    # an encoding that inserts tokens lengthens the sequence, and positions then belong to other keys
    layers = [weights for weights in cache.attention.values() if isinstance(weights, Tensor)]
    return (torch.stack(layers), batch) if layers and layers[0].shape[-1] == length else None


def attention_maps(run: ArenaRun, folder: RunFolder, examples: int = EXAMPLES) -> AttentionMaps:
    captured = attention_weights(run, folder)
    if captured is None:
        return AttentionMaps()
    weights, batch = captured
    positions = batch.positions[0].float()
    distance = (weights * (positions[:, None] - positions[None, :]).abs()).sum(-1).mean((1, 3))
    keys = run.task.build().answer_keys(batch)
    on_answer, answer_keys = _on_answer(weights, keys) if keys is not None else ([], [])
    drawn = weights[:, :examples]
    return AttentionMaps(
        layers=len(drawn),
        examples=drawn.shape[1],
        heads=drawn.shape[2],
        tokens=drawn.shape[3],
        weights=base64.b64encode((drawn * 255).round().byte().numpy().tobytes()).decode(),
        distance=tuple(map(tuple, distance.tolist())),
        inputs=tuple(map(tuple, batch.inputs[:examples].tolist())),
        answer_keys=tuple(map(tuple, answer_keys[:examples])),
        on_answer=tuple(map(tuple, on_answer)),
    )


def _on_answer(weights: Tensor, keys: Tensor) -> tuple[list[list[float]], list[list[int]]]:
    """Mean weight on the answer key, by layer and head; and the keys, by sequence and query."""
    layers, sequences, heads, tokens, _ = weights.shape
    keys = keys.expand(sequences, tokens)
    index = keys.clamp(min=0)[None, :, None, :, None].expand(layers, -1, heads, -1, -1)
    asked = (keys >= 0)[None, :, None]
    share = (weights.gather(-1, index).squeeze(-1) * asked).sum((1, 3)) / asked.sum()
    return share.tolist(), keys.tolist()
