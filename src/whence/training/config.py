"""The configuration of a run: frozen, with a content hash that is the id of the run."""

from __future__ import annotations

import abc
import importlib
import importlib.util
import math
import re
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field

from whence.config import Config
from whence.errors import UserError
from whence.store.files import FORMAT
from whence.store.records import run_id

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from whence.random import Streams


class TrainingConfig(Config):
    """Optimizer, schedule and evaluation."""

    steps: int = Field(default=300, ge=1, le=10**9, description="optimizer steps")
    batch_size: int = Field(default=64, ge=1, le=2**20, description="sequences per step")
    lr: float = Field(default=3e-3, gt=0, le=1e38, description="peak learning rate")
    schedule: Literal["cosine", "constant"] = Field(default="cosine", description="learning rate after the warm-up")
    warmup: int = Field(default=20, ge=0, le=10**9, description="steps of linear learning-rate warm-up")
    weight_decay: float = Field(default=0.01, ge=0, le=1e6, description="weight decay, of linear layers only")
    clip: float = Field(default=1.0, gt=0, le=1e38, description="maximum norm of the gradient")
    precision: Literal["fp32", "bf16"] = Field(default="fp32", description="bf16: autocast, with weights in fp32")
    evaluations: int = Field(
        default=10, ge=1, le=10_000, description="evaluations during training, evenly spaced, after the one at step 0"
    )

    def lr_at(self, step: int) -> float:
        """The learning rate of a step. It depends on the step alone, so that there is no state to store."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * 0.5 * (1 + math.cos(math.pi * progress))

    def evaluation_steps(self) -> set[int]:
        """Numbers of completed steps after which the model is evaluated, from 0 to `steps`."""
        return {round(self.steps * i / self.evaluations) for i in range(self.evaluations + 1)}


class Metrics(Config):
    """The metrics of one evaluation. Every instrument has a subclass, which also reads the metrics of stored runs."""

    model_config = ConfigDict(allow_inf_nan=True)  # the trainer reports a value that is not finite

    headline: dict[str, float]
    """The few numbers that a list of runs shows: fractions, unless the name ends with a unit in brackets"""


M = TypeVar("M", bound=Metrics)
T = TypeVar("T", bound=TrainingConfig)
Model = TypeVar("Model", bound="nn.Module")


class Trainable(abc.ABC, Generic[Model]):
    """What an instrument supplies to the training loop. All state that lasts beyond a step is in `model`."""

    model: Model

    @abc.abstractmethod
    def setup(self, streams: Streams, device: torch.device) -> None:
        """Build `self.model` on the device, initialised from `streams.init`."""

    def optimizer(self, training: TrainingConfig) -> torch.optim.Optimizer | None:
        """The optimizer; None: `make_optimizer` of `whence.training.optim`."""
        return None

    @abc.abstractmethod
    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        """The loss of one training step on data drawn from the generator, and how many tokens it took."""

    @abc.abstractmethod
    def evaluate(self, streams: Streams) -> Metrics:
        """Metrics on this seed's evaluation data."""

    def monitor(self, streams: Streams) -> Metrics:
        """The same metrics during training, for learning curves. A job may compute them on less data."""
        return self.evaluate(streams)


class RunConfig(Config, abc.ABC, Generic[M, T]):
    """One run. An instrument is a package `whence.<kind>` whose `run` module holds a subclass of this kind."""

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[RunConfig[Any, Any]]]] = {}
    """Every subclass that has been imported"""
    seed: int = Field(
        default=0, ge=0, le=2**63 - 1, description="random seed; runs of one seed share data and initial weights"
    )
    training: T

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if "kind" in cls.__dict__:
            cls.kinds[cls.kind] = cls

    @classmethod
    def metrics_class(cls) -> type[M]:
        """The class of its metrics: the first parameter of `RunConfig[…]`."""
        generics = (getattr(parent, "__pydantic_generic_metadata__", {}).get("args") for parent in cls.__mro__)
        return next(arguments[0] for arguments in generics if arguments)

    def document(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.model_dump(mode="json")}

    def training_document(self) -> dict[str, Any]:
        """The document without fields that concern evaluation only. Runs that share it train to the same model."""
        document = self.document()
        del document["training"]["evaluations"]
        return document

    def versions(self) -> dict[str, int]:
        """Versions of code that the result depends on; part of the run's identity."""
        return {"format": FORMAT}

    @property
    def id(self) -> str:
        return run_id(self.document(), self.versions())

    def labels(self) -> dict[str, str]:
        """What distinguishes this run in tables, by the name of the column."""
        return {}

    def check(self) -> int:
        """Raise `UserError` for fields that are valid alone and impossible together; return the number of parameters.

        Models are built on the meta device, without memory.
        """
        return 0

    def check_metrics(self, metrics: M) -> None:
        """Raise `ValueError` for metrics that this run cannot have computed: a store may come from a stranger."""

    def working_bytes(self) -> int:
        """Lower bound of the memory beside the weights, in a training step or an evaluation."""
        return 0

    @abc.abstractmethod
    def job(self) -> Trainable[Any]:
        """What the training loop trains."""


AnyRun = RunConfig[Any, Any]


def load_run_config(document: dict[str, Any]) -> AnyRun:
    """The configuration in a stored or received document. Its kind can name an instrument of whence only."""
    kind = str(document.get("kind"))
    places = (f"whence.{kind}", f"whence.{kind}.run")
    if not (re.fullmatch(r"[a-z]+", kind) and all(map(importlib.util.find_spec, places))):
        raise UserError(f"kind: {kind!r} is not an instrument of this version of whence.")
    importlib.import_module(f"whence.{kind}.run")
    return RunConfig.kinds[kind].read({key: value for key, value in document.items() if key != "kind"})
