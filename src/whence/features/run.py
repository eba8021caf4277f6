"""One autoencoder: its data, one seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, cast

import torch
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from whence.errors import UserError
from whence.features.data.base import Data, States
from whence.features.evals.measures import measure, recovery, tally
from whence.features.sae.autoencoder import Autoencoder, AutoencoderSpec
from whence.features.sae.parts import DATA, DataChoice
from whence.models.init import initialise
from whence.models.sequence import count_parameters
from whence.random import Streams
from whence.recordings import with_checksum
from whence.registry import Choice
from whence.training.config import RunConfig, Trainable, TrainingConfig


def parse_data(value: Any) -> Any:
    """The folder of a collection may stand for it."""
    if not isinstance(value, str) or value.split(":")[0] in DATA.names():
        return value
    return {"name": "stored", "path": value}


def data_of(choice: Choice[Data]) -> Data:
    """The data, checked; what is impossible about them is the user's to mend."""
    try:
        data: Data = choice.build()
    except ValueError as error:
        raise UserError(f"data: {error}", field="data") from None
    data.check()
    return data


AnyData = Annotated[DataChoice, BeforeValidator(parse_data), AfterValidator(with_checksum)]


class FeatureTraining(TrainingConfig):
    """How an autoencoder is trained."""

    steps: int = Field(default=400, ge=1, description="optimiser steps")
    batch_size: int = Field(default=1024, ge=1, description="states per step")
    lr: float = Field(default=8e-3, gt=0, description="peak learning rate")
    position_pace: float = Field(
        default=10.0, gt=0, description="learning rate of what is about position, in terms of lr"
    )
    warmup: int = Field(default=30, ge=0, description="steps of linear warm-up")
    weight_decay: float = Field(default=0.0, ge=0, description="of all parameters")
    clip: float = Field(default=1000.0, gt=0, description="largest norm of the gradient")
    evaluations: int = Field(default=5, ge=1, description="evaluations after the one at step 0, evenly spaced")


class FeaturesRun(RunConfig):
    """Train one autoencoder."""

    kind: ClassVar[str] = "features"
    data: AnyData = Field(default=DATA.choose("planted"), description="states to learn features of")
    model: AutoencoderSpec = AutoencoderSpec()
    training: FeatureTraining = FeatureTraining()  # pyright: ignore[reportIncompatibleVariableOverride] (frozen)

    def labels(self) -> dict[str, str]:
        data, model = self.data.options().get("path") or str(self.data), self.model
        parts = [
            model.centre,
            model.encoder,
            model.norm,
            model.mask,
            *model.losses,
            model.position_schedule,
            model.start,
        ]
        plain = AutoencoderSpec()
        usual = [plain.centre, plain.encoder, plain.norm, plain.mask, plain.position_schedule, plain.start]
        made = " · ".join(str(part) for part in parts if part not in usual) or "plain"
        return {
            "data": data.split("/")[-1],
            "made of": made + " (blind)" * model.blind,
            "sparsity": str(model.sparsity),
        }

    def check(self) -> int:
        data_of(self.data)
        return self.parameters()

    def parameters(self) -> int:
        try:
            return count_parameters(self.build_model("meta"))
        except ValueError as error:
            raise UserError(str(error), field="model") from None

    def build_model(self, device: torch.device | str) -> Autoencoder:
        data: Data = self.data.build()
        with torch.device(device):
            return self.model.build(data.width, data.context, self.training.steps, data.ends)

    def job(self) -> FeatureJob:
        return FeatureJob(self)


class FeatureJob(Trainable):
    """Training on states drawn at random; evaluation on states of texts never trained on."""

    def __init__(self, run: FeaturesRun) -> None:
        self.run = run
        self.data: Data = run.data.build()

    @property
    def autoencoder(self) -> Autoencoder:
        return cast(Autoencoder, self.model)

    def setup(self, streams: Streams, device: torch.device) -> None:
        self.device = device
        model = self.run.build_model("cpu")
        initialise(model, streams.init)
        model.fit(self.data.everything())
        self.model = model.to(device)

    def optimizer(self, training: TrainingConfig) -> torch.optim.Optimizer:
        model, mine = self.autoencoder, self.run.training
        apart = {id(parameter) for parameter in model.positional_parameters()}
        groups = [
            {"params": [p for p in model.parameters() if id(p) not in apart], "pace": 1.0},
            {"params": [p for p in model.parameters() if id(p) in apart], "pace": mine.position_pace},
        ]
        there = [group for group in groups if group["params"]]
        return torch.optim.AdamW(there, lr=mine.lr, betas=(0.9, 0.99), weight_decay=mine.weight_decay, fused=True)

    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        states, positions = self.data.draw(generator, self.run.training.batch_size)
        return self.autoencoder.loss(states.to(self.device), positions.to(self.device)), len(states)

    def evaluate(self, streams: Streams) -> dict[str, Any]:
        """Little while training goes on, everything at its end."""
        with torch.autocast(self.device.type, enabled=False):
            return self._measured(streams.evaluation)

    def _measured(self, stream: int) -> dict[str, Any]:
        """The first part of what is held out makes the learning curve, all of it the result."""
        model = self.autoencoder
        held = [(states.to(self.device), places.to(self.device)) for states, places in self._held_out(stream)]
        first = tally(model, held[:1])
        metrics: dict[str, Any] = {"fvu": first.fvu, "l0": first.l0}
        if self._at_the_end:
            metrics = measure(model, held, model.assigned())
            truth = self.data.truth()
            if truth:
                metrics["recovery"] = recovery(model.directions.detach().cpu(), truth)
        headline = {"FVU": metrics["fvu"], "L0 (features)": metrics["l0"]}
        return {"headline": headline, **metrics, "curve": first.fvu}

    @property
    def _at_the_end(self) -> bool:
        return int(self.autoencoder.done) >= self.run.training.steps

    def _held_out(self, stream: int) -> Iterator[States]:
        return itertools.islice(self.data.held_out(stream), None if self._at_the_end else 1)
