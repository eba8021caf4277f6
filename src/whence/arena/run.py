"""One cell of a comparison: one task, one encoding, one seed."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.models.init import initialise
from whence.models.losses import loss
from whence.models.sequence import ModelSpec, count_parameters
from whence.runs.spec import Job, RunSpec
from whence.runs.streams import Streams, generator
from whence.spec import Spec
from whence.tasks import TASKS, TaskChoice
from whence.tasks.base import Task

EVALUATION_BATCH = 64


class Lengths(Spec):
    """How long sequences are, in training and in tests."""

    train_length: int = Field(default=32, ge=2, description="longest sequence in training")
    min_length: int | None = Field(
        default=None,
        ge=2,
        description="shortest in training; none: full length for tasks per token, every length for tasks per sequence",
    )
    test_lengths: tuple[int, ...] = Field(
        default=(64, 128), description="lengths beyond training; scored on what lies beyond training alone"
    )
    test_sequences: int = Field(default=128, ge=1, le=100_000, description="sequences in each frozen evaluation set")

    def shortest_for(self, task: Task) -> int:
        if self.min_length is not None:
            return max(self.min_length, task.shortest)
        return self.train_length if task.per == "token" else min(self.train_length, max(4, task.shortest))


class Run(RunSpec):
    """Train one model on one task."""

    kind: ClassVar[str] = "arena"
    task: TaskChoice = Field(
        default=TASKS.preferred("k_back_recall")[0], description="what to learn (see 'whence tasks')"
    )
    model: ModelSpec = ModelSpec()
    lengths: Lengths = Lengths()

    def labels(self) -> dict[str, str]:
        return {"task": str(self.task), "mixer": str(self.model.mixer), "encoding": self.model.contender}

    def check(self) -> int:
        task: Task = self.task.build()
        lengths = self.lengths
        if lengths.train_length < task.shortest:
            raise _refusal("train_length", lengths.train_length, f"{task.shortest} or more for {self.task}")
        if lengths.min_length is not None and lengths.min_length > lengths.train_length:
            raise _refusal("min_length", lengths.min_length, f"at most train_length={lengths.train_length}")
        for length in lengths.test_lengths:
            if length <= lengths.train_length:
                raise _refusal("test_lengths", length, f"more than train_length={lengths.train_length}")
        if self.model.attention == "prefix":
            raise _refusal("attention", "prefix", f"causal, bidirectional ({self.task} gives no prompt)")
        try:
            model = self.build_model("meta")
            longest = torch.zeros(1, self.longest, dtype=torch.long, device="meta")
            model(longest, longest)
        except ValueError as error:
            raise UserError(str(error), field="model") from None
        return count_parameters(model)

    @property
    def longest(self) -> int:
        return max((self.lengths.train_length, *self.lengths.test_lengths))

    def build_model(self, device: torch.device | str) -> torch.nn.Module:
        task: Task = self.task.build()
        lengths = self.lengths
        with torch.device(device):
            return self.model.build(
                task.symbols,
                task.outputs,
                task.per,
                train_length=lengths.train_length,
                max_length=self.longest,
            )

    def floors(self, metrics: dict[str, Any], part: str) -> dict[str, float]:
        """What each shortcut would have scored on the answers counted in `metrics["id"]` or `metrics["ood"]`."""
        task: Task = self.task.build()
        train_length = self.lengths.train_length
        if part == "id":
            return task.floors(train_length)
        counts = {length: metrics["lengths"][str(length)]["total"] for length in self.lengths.test_lengths}
        floors = {length: task.floors(length, train_length) for length in counts}
        total = sum(counts.values())
        names = floors[self.lengths.test_lengths[0]]
        return {name: sum(floors[n][name] * counts[n] for n in counts) / total for name in names}

    def job(self) -> ArenaJob:
        return ArenaJob(self)


def _refusal(field: str, value: object, allowed: str) -> UserError:
    return UserError(f"{field}: {value!r} is not possible here. Allowed: {allowed}.", field=field)


class ArenaJob(Job):
    """Training on batches of one length at a time; evaluation on frozen sets, within and beyond training."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.task: Task = run.task.build()
        self.shortest = run.lengths.shortest_for(self.task)

    def setup(self, streams: Streams, device: torch.device) -> None:
        self.device = device
        self.model = self.run.build_model(device)
        initialise(self.model, streams.init)

    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        longest = self.run.lengths.train_length
        length = int(torch.randint(self.shortest, longest + 1, (), generator=generator))
        batch = self.task.sample(generator, self.run.training.batch_size, length).to(self.device)
        outputs = self.model(batch.inputs, batch.positions)
        return loss(self.task.goal, outputs, batch.targets, batch.scored), batch.inputs.numel()

    def evaluate(self, streams: Streams) -> dict[str, Any]:
        train_length = self.run.lengths.train_length
        within = self._score(streams, train_length, beyond=0)
        lengths = {
            str(length): self._score(streams, length, beyond=train_length) for length in self.run.lengths.test_lengths
        }
        metrics = {"id": within, "lengths": {str(train_length): within, **lengths}}
        headline = {"id": within["correct"] / within["total"]}
        if lengths:
            metrics["ood"] = _pool(list(lengths.values()))
            headline["ood"] = metrics["ood"]["correct"] / metrics["ood"]["total"]
        return {"headline": headline, **metrics}

    def _score(self, streams: Streams, length: int, beyond: int) -> dict[str, Any]:
        """Counts over a frozen set; for tasks per token, only positions from `beyond` on count."""
        correct = total = 0
        loss_sum = 0.0
        for start in range(0, self.run.lengths.test_sequences, EVALUATION_BATCH):
            count = min(EVALUATION_BATCH, self.run.lengths.test_sequences - start)
            place = generator(streams.evaluation, str(self.run.task), length, start)
            batch = self.task.sample(place, count, length).to(self.device)
            outputs = self.model(batch.inputs, batch.positions).float()
            scored = batch.scored & (batch.positions >= beyond) if self.task.per == "token" else batch.scored
            right = self.task.correct(outputs, batch.targets) & scored
            n = int(scored.sum())
            correct, total = correct + int(right.sum()), total + n
            loss_sum += loss(self.task.goal, outputs, batch.targets, scored).item() * n
        return {"correct": correct, "total": total, "loss": loss_sum / total}


def _pool(parts: list[dict[str, Any]]) -> dict[str, Any]:
    total = sum(part["total"] for part in parts)
    return {
        "correct": sum(part["correct"] for part in parts),
        "total": total,
        "loss": sum(part["loss"] * part["total"] for part in parts) / total,
    }
