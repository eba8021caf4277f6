"""The training loop that all instruments share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import JsonValue
from torch import nn

from whence.random import Streams, generator, seed_torch
from whence.store.records import EvaluationRecord, LossRecord, MetricsRecord
from whence.training.config import Trainable, TrainingConfig

LOGGED_LOSSES = 200
"""Training losses stored per run, evenly spaced, so that the file does not grow with the number of steps"""


class NonFiniteError(Exception):
    """A loss, a gradient or a metric is infinite or NaN. Raised before the optimizer uses it."""

    def __init__(self, step: int, tensor: str) -> None:
        super().__init__(f"non-finite value in {tensor} at step {step}")
        self.step, self.tensor = step, tensor


@dataclass
class Progress:
    """The progress of a run; stored in checkpoints beside the tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float | None = None
    evaluated: int = -1
    """The step of the latest evaluation, so that one that is due is still made after a stop or a failure"""
    latest: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Listener:
    """Callbacks of the training loop. `record` receives only values that a resumed run reproduces exactly."""

    record: Callable[[MetricsRecord], None]
    checkpoint: Callable[[Progress], None]
    progress: Callable[[Progress], None]
    checkpoint_due: Callable[[], bool]
    should_stop: Callable[[], bool]


def train(
    job: Trainable[Any],
    training: TrainingConfig,
    streams: Streams,
    optimizer: torch.optim.Optimizer,
    at: Progress,
    listener: Listener,
) -> bool:
    """Train from `at` to the last step. False if it was stopped before, after a checkpoint."""
    log_every = max(1, training.steps // LOGGED_LOSSES)
    _evaluate_if_due(job, training, streams, at, listener)
    while at.step < training.steps:
        if listener.should_stop():
            listener.checkpoint(at)
            return False
        started = time.perf_counter()
        at.loss, norm, tokens = _step(job, training, streams, optimizer, at.step)
        at.step, at.tokens = at.step + 1, at.tokens + tokens
        at.seconds += time.perf_counter() - started
        if at.step % log_every == 0:
            listener.record(LossRecord(step=at.step, loss=at.loss, grad_norm=norm, lr=training.lr_at(at.step - 1)))
        _evaluate_if_due(job, training, streams, at, listener)
        if at.step < training.steps and listener.checkpoint_due():
            listener.checkpoint(at)
        listener.progress(at)
    return True


def _step(
    job: Trainable[Any], training: TrainingConfig, streams: Streams, optimizer: torch.optim.Optimizer, step: int
) -> tuple[float, float, int]:
    job.model.train()
    seed_torch(streams.dropout, step)
    with autocast(job.model, training.precision):
        loss, tokens = job.step(generator(streams.data, step))
    value = loss.item()
    if not math.isfinite(value):
        raise NonFiniteError(step, _blame(job, training, streams, step))
    torch.autograd.backward(loss)
    norm = nn.utils.clip_grad_norm_(job.model.parameters(), training.clip).item()
    if not math.isfinite(norm):
        bad = (n for n, p in job.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all())
        name = next(bad, None)  # finite gradients can still have a norm that overflows
        optimizer.zero_grad()
        raise NonFiniteError(step, f"gradient of {name}" if name else "norm of the gradient")
    for group in optimizer.param_groups:
        group["lr"] = training.lr_at(step) * group.get("lr_multiplier", 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return value, norm, tokens


def _evaluate_if_due(
    job: Trainable[Any], training: TrainingConfig, streams: Streams, at: Progress, listener: Listener
) -> None:
    if at.step not in training.evaluation_steps() or at.evaluated >= at.step:
        return
    job.model.eval()
    seed_torch(streams.evaluation, "model")
    with torch.no_grad(), autocast(job.model, training.precision):
        computed = (job.evaluate if at.step == training.steps else job.monitor)(streams)
    metrics = computed.model_dump(mode="json")
    if (bad := _first_non_finite(metrics)) is not None:
        raise NonFiniteError(at.step, f"evaluation metric {bad}")
    at.latest, at.evaluated = metrics, at.step
    listener.record(EvaluationRecord(step=at.step, metrics=metrics))


def autocast(model: nn.Module, precision: str) -> AbstractContextManager[Any]:
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(next(model.parameters()).device.type, torch.bfloat16)


def _first_non_finite(value: JsonValue, path: str = "") -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next((bad for key, v in items if (bad := _first_non_finite(v, f"{path}.{key}".strip(".")))), None)


def _blame(job: Trainable[Any], training: TrainingConfig, streams: Streams, step: int) -> str:
    """Repeat the failed step with a hook on every module, to name the first tensor that is not finite."""
    for name, parameter in job.model.named_parameters():
        if not parameter.isfinite().all():
            return f"parameter {name}"
    names: list[str] = []
    with ExitStack() as hooks:
        for name, module in job.model.named_modules():

            def look(_module: nn.Module, _inputs: Any, output: Any, name: str = name) -> None:
                if isinstance(output, torch.Tensor) and not output.isfinite().all():
                    names.append(name)

            if name:
                hooks.callback(module.register_forward_hook(look).remove)
        seed_torch(streams.dropout, step)
        with torch.no_grad(), autocast(job.model, training.precision):
            job.step(generator(streams.data, step))
    return f"output of {names[0]}" if names else "loss"
