"""One run of a comparison: one task, one encoding, one seed."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import pydantic
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from whence.arena.metrics import ArenaMetrics, EvalCounts, count, pool
from whence.config import Config
from whence.errors import UserError
from whence.models.init import initialise
from whence.models.layers import loss
from whence.models.sequence import ModelConfig, SequenceModel, activation_bytes, count_blocks
from whence.random import Streams, generator
from whence.shortcuts.baselines import scores, stated_baseline
from whence.shortcuts.search import ShortcutScore
from whence.tasks import TASKS, Batch, Task, TaskChoice
from whence.training.config import RunConfig, Trainable, TrainingConfig

EVALUATION_BATCH = 64
MONITORED_SEQUENCES = 32
"""Sequences per length of an evaluation during training. Ten of these cost about as much as the final evaluation."""


def _listed(value: Any) -> Any:
    """A single length is a list with one element; `0` alone means no OOD evaluation."""
    if value in (0, "0", [0], ["0"], (0,), ("0",)):
        return ()
    return (value,) if isinstance(value, int | str) else value


Length = Annotated[int, Field(ge=1, le=2**20)]


class Lengths(Config):
    """Sequence lengths of training and evaluation. The task fills in what is not set."""

    train_length: int | None = Field(
        default=None, ge=2, le=2**20, description="maximum sequence length in training; default: that of the task"
    )
    min_length: int | None = Field(
        default=None,
        ge=1,
        le=2**20,
        description="minimum sequence length in training; default: the maximum for tasks with an answer at every "
        "position, otherwise the shortest that the task allows",
    )
    test_lengths: Annotated[tuple[Length, ...] | None, BeforeValidator(_listed)] = Field(
        default=None,
        max_length=64,
        description="OOD lengths, above the training length; only positions beyond it are scored. Default: those "
        "of the task; 0: no OOD evaluation",
    )
    test_sequences: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="number of test sequences per length and seed",
    )

    def for_task(self, task: Task) -> Lengths:
        """A copy with all fields set."""
        train = self.train_length or task.train_length
        test_lengths = task.ood_lengths(train) if self.test_lengths is None else self.test_lengths
        filled = dict(self) | {"train_length": train, "test_lengths": test_lengths}
        return self.model_construct(self.model_fields_set, **filled)  # keeps the record of which fields were set


class ArenaRun(RunConfig[ArenaMetrics, TrainingConfig]):
    """Train one model on one task."""

    kind: ClassVar[str] = "arena"
    task: TaskChoice = Field(default=TASKS.choose("k_back_recall"), description="task to train on (see 'whence tasks')")
    model: ModelConfig = ModelConfig()
    lengths: Lengths = Lengths()
    training: TrainingConfig = TrainingConfig()

    @pydantic.model_validator(mode="after")
    def _leave_nothing_open(self) -> ArenaRun:
        """Store the lengths explicitly, so that a stored run keeps its meaning when the defaults of a task change."""
        object.__setattr__(self, "lengths", self.lengths.for_task(self.task.build()))
        return self

    def training_document(self) -> dict[str, Any]:
        document = super().training_document()
        for name in ("test_lengths", "test_sequences"):
            del document["lengths"][name]
        return document

    def versions(self) -> dict[str, int]:
        return {**super().versions(), "task": self.task.build().version}

    def labels(self) -> dict[str, str]:
        return {"task": str(self.task), "mixer": str(self.model.mixer), "encoding": self.model.position_label}

    @property
    def train_length(self) -> int:
        assert self.lengths.train_length is not None
        return self.lengths.train_length

    @property
    def test_lengths(self) -> tuple[int, ...]:
        assert self.lengths.test_lengths is not None
        return self.lengths.test_lengths

    @property
    def lengths_scored(self) -> tuple[int, ...]:
        return (self.train_length, *self.test_lengths)

    @property
    def longest(self) -> int:
        return max(self.lengths_scored)

    @property
    def shortest(self) -> int:
        """Minimum sequence length in training."""
        task: Task = self.task.build()
        if self.lengths.min_length is not None:
            return max(self.lengths.min_length, task.shortest)
        return self.train_length if task.dense else min(self.train_length, task.shortest)

    def check(self) -> int:
        task: Task = self.task.build()
        train_length, longest = self.train_length, self.longest
        if train_length < task.shortest:
            raise _refusal("train_length", train_length, f"{task.shortest} or more for {self.task}")
        if task.longest is not None and longest > task.longest:
            field = "train_length" if train_length == longest else "test_lengths"
            raise _refusal(field, longest, f"{task.longest} or less for {self.task}")
        if self.lengths.min_length is not None and self.lengths.min_length > train_length:
            raise _refusal("min_length", self.lengths.min_length, f"at most train_length={train_length}")
        for place, length in enumerate(self.test_lengths):
            if length in self.test_lengths[:place]:
                raise _refusal("test_lengths", length, "each length once")
            if length <= train_length:
                raise _refusal("test_lengths", length, f"more than train_length={train_length}")
        if self.model.attention == "prefix" and not task.sample(torch.Generator(), 1, task.shortest).prompt:
            raise _refusal("attention", "prefix", f"causal, bidirectional ({self.task} has no prompt)")
        if task.feeds_answers and self.model.mixer.variant.looks_ahead(self.model.attention):
            raise UserError(
                f"task: {self.task} feeds earlier answers as inputs, which a model that attends ahead can copy. "
                f"Allowed: causal attention or a causal mixer, or the task with answers=blank."
            )
        return _tried(self.model_dump_json(include={"task", "model", "lengths"}))

    def check_metrics(self, metrics: ArenaMetrics) -> None:
        if not set(self.lengths_scored) <= set(metrics.lengths) or bool(metrics.ood) != bool(self.test_lengths):
            raise ValueError(f"expected lengths {self.lengths_scored}, got {tuple(metrics.lengths)}")
        counts = [metrics.id, *metrics.lengths.values(), *filter(None, [metrics.ood, metrics.validation])]
        if not all(one.total and one.sequences for one in counts):
            raise ValueError("expected at least one scored answer in every evaluation, got none")

    def with_layers(self, layers: int) -> ArenaRun:
        return self.model_copy(update={"model": self.model.model_copy(update={"layers": layers})})

    def working_bytes(self) -> int:
        task: Task = self.task.build()
        hooks, rows = self.model.encoding.variant.hooks(), min(EVALUATION_BATCH, self.lengths.test_sequences)
        trained, longest = task.tokens(self.train_length), task.tokens(self.longest)
        return max(
            activation_bytes(self.model, hooks, self.training.batch_size, trained, training=True),
            activation_bytes(self.model, hooks, rows, longest, training=False),
            8 * self.lengths.test_sequences * trained,
        )

    def build_model(self, device: torch.device | str) -> SequenceModel:
        task: Task = self.task.build()
        with torch.device(device):
            return self.model.build(
                task.symbols,
                task.outputs,
                task.per,
                train_length=task.tokens(self.train_length),
                max_length=task.tokens(self.longest),
            )

    def shortcut_baselines(self, length: int) -> dict[str, float]:
        """Accuracy of every shortcut, by name, on the answers that count at this length."""
        baselines = scores(self.task, length, self.first_counted(length))
        return {score.name: score.accuracy for score in baselines if not score.expresses_skill}

    def stated_baseline(self, length: int) -> ShortcutScore:
        """The highest of the shortcut baselines."""
        return stated_baseline(self.task, length, self.first_counted(length))

    def first_counted(self, length: int) -> int:
        """First scored position. In sequences beyond the training length, only positions beyond it are scored."""
        return self.train_length if length > self.train_length else 0

    def job(self) -> ArenaJob:
        return ArenaJob(self)


@functools.lru_cache(maxsize=1024)
def _tried(document: str) -> int:
    """Number of parameters, after a forward pass of the longest sequence on the meta device.

    Cached, because a form checks all runs of a comparison whenever one of its fields changes.
    """
    run = ArenaRun.model_validate_json(document)
    try:
        built = run.with_layers(min(run.model.layers, 2)).build_model("meta")
        length = run.task.build().tokens(run.longest)
        longest_input = torch.zeros(1, length, dtype=torch.long, device="meta")
        prefix = {"prefix": torch.ones(1, device="meta")} if run.model.attention == "prefix" else {}
        built(longest_input, longest_input, **prefix)
        return count_blocks(run.model.layers, lambda layers: run.with_layers(layers).build_model("meta"))
    except ValueError as error:
        raise UserError(str(error), field="model") from None


def _refusal(field: str, value: object, allowed: str) -> UserError:
    return UserError(f"{field}: {value!r} is not possible here. Allowed: {allowed}.")


class ArenaJob(Trainable[SequenceModel]):
    """Training on batches of one length at a time; evaluation in and out of distribution."""

    def __init__(self, run: ArenaRun) -> None:
        self.run = run
        self.task: Task = run.task.build()
        self.shortest = run.shortest

    def setup(self, streams: Streams, device: torch.device) -> None:
        self.device = device
        self.model = self.run.build_model(device)
        initialise(self.model, streams.init)

    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        batch = self._training_batch(generator).to(self.device)
        return loss(self.task.goal, answers(self.model, batch), batch.targets, batch.scored), batch.inputs.numel()

    def _training_batch(self, generator: torch.Generator) -> Batch:
        length = int(torch.randint(self.shortest, self.run.train_length + 1, (), generator=generator))
        return self.task.sample(generator, self.run.training.batch_size, length)

    def evaluate(self, streams: Streams) -> ArenaMetrics:
        metrics = self._metrics(streams, self.run.lengths.test_sequences)
        validation = pool([self._count(streams, "validation", self.run.train_length)])
        more = {"validation": validation, "seen_in_training": self._seen_in_training(streams)}
        return metrics.model_copy(update=more)

    def monitor(self, streams: Streams) -> ArenaMetrics:
        return self._metrics(streams, min(MONITORED_SEQUENCES, self.run.lengths.test_sequences))

    def _metrics(self, streams: Streams, sequences: int) -> ArenaMetrics:
        own = self._count(streams, "test", self.run.train_length, sequences)
        longer = {length: self._count(streams, "test", length, sequences) for length in self.run.test_lengths}
        ood = pool(list(longer.values())) if longer else None
        headline = {"id": own.accuracy} | ({"ood": ood.accuracy} if ood else {})
        lengths = {self.run.train_length: own, **longer}
        return ArenaMetrics(headline=headline, id=pool([own]), ood=ood, lengths=lengths)

    def _count(self, streams: Streams, purpose: str, length: int, sequences: int | None = None) -> EvalCounts:
        batches = (of.to(self.device) for of in evaluation_batches(self.run, streams, purpose, length, sequences))
        answered = ((batch, answers(self.model, batch).float()) for batch in batches)
        return count(self.task, answered, self.task.tokens(length), self.run.first_counted(length))

    def _seen_in_training(self, streams: Streams) -> int:
        """Number of test sequences of the training length that also occur in this run's training data.

        Training batches are drawn again: they are a function of the seed and the step.
        """
        run = self.run
        test = torch.cat([batch.inputs for batch in evaluation_batches(run, streams, "test", run.train_length)])
        wanted = {row.tobytes() for row in test.numpy()}
        seen: set[bytes] = set()
        for step in range(run.training.steps):
            inputs = self._training_batch(generator(streams.data, step)).inputs
            if inputs.shape[1] == test.shape[1]:
                seen |= wanted & {row.tobytes() for row in inputs.numpy()}
        return sum(row.tobytes() in seen for row in test.numpy())


def answers(model: nn.Module, batch: Batch) -> Tensor:
    """Predictions of the model. Prefix attention receives the length of the prompt."""
    if not isinstance(model, SequenceModel) or model.config.attention != "prefix":
        return model(batch.inputs, batch.positions)
    ends = torch.full((len(batch.inputs),), batch.prompt, device=batch.inputs.device)
    return model(batch.inputs, batch.positions, prefix=ends)


def evaluation_batches(
    run: ArenaRun, streams: Streams, purpose: str, length: int, sequences: int | None = None
) -> Iterator[Batch]:
    """Evaluation data: a function of the seed, the task and the length, and so the same for every encoding."""
    sequences = sequences or run.lengths.test_sequences
    for start in range(0, sequences, EVALUATION_BATCH):
        count = min(EVALUATION_BATCH, sequences - start)
        place = generator(streams.evaluation, purpose, str(run.task), length, start)
        yield run.task.build().sample(place, count, length)
