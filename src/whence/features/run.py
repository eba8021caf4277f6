"""One autoencoder: its data, one seed."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.experiments.saved import Presets
from whence.features.config import AutoencoderConfig, DataChoice, FeaturesTraining
from whence.features.data import DATA, PART, build_data
from whence.features.evals.measures import dictionary_metrics, feature_statistics, recovery
from whence.features.metrics import FeaturesMetrics
from whence.features.sae.autoencoder import Autoencoder
from whence.models.init import initialise
from whence.models.sequence import count_parameters
from whence.random import Streams
from whence.store.runs import Store, open_finished_run
from whence.training.checkpoint import weights_of
from whence.training.config import RunConfig, Trainable, TrainingConfig


class FeaturesRun(RunConfig[FeaturesMetrics, FeaturesTraining]):
    """Train one autoencoder."""

    kind: ClassVar[str] = "features"
    data: DataChoice = Field(
        default=DATA.choose("synthetic"), description="activations to train on: synthetic, or a collection's directory"
    )
    model: AutoencoderConfig = AutoencoderConfig()
    training: FeaturesTraining = FeaturesTraining()

    def labels(self) -> dict[str, str]:
        data, model = self.data.options().get("path") or str(self.data), self.model
        plain = AutoencoderConfig()
        names = ("centering", "encoder", "norm", "mask", "losses", "position_schedule", "init")
        chosen = [getattr(model, name) for name in names if getattr(model, name) != getattr(plain, name)]
        parts = [str(part) for choice in chosen for part in (choice if isinstance(choice, tuple) else (choice,))]
        architecture = " · ".join(parts) or "plain"
        return {
            "data": data.split("/")[-1],
            "architecture": architecture + " (position ablated)" * model.position_ablated,
            "sparsity": str(model.sparsity),
        }

    def check(self) -> int:
        build_data(self.data).verify()
        return self.parameters()

    def working_bytes(self) -> int:
        """Activations and codes of a training batch, or of a part of the data that is fitted or held out."""
        shape = self.data.build().shape
        rows = max(self.training.batch_size, PART)
        return 4 * rows * (shape.d_in + max(self.model.d_sae, shape.features))

    def parameters(self) -> int:
        try:
            return count_parameters(self.build_model("meta"))
        except ValueError as error:
            raise UserError(str(error), field="model") from None

    def build_model(self, device: torch.device | str) -> Autoencoder:
        shape = self.data.build().shape
        with torch.device(device):
            return Autoencoder(self.model, shape.d_in, shape.context_size, self.training.steps, shape.ends)

    def job(self) -> FeaturesTrainable:
        return FeaturesTrainable(self)


PRESETS = Presets("whence.features", FeaturesRun)


class FeaturesTrainable(Trainable[Autoencoder]):
    """Training on activations drawn at random; evaluation on held-out activations."""

    def __init__(self, run: FeaturesRun) -> None:
        self.run = run
        self.data = run.data.build()

    def setup(self, streams: Streams, device: torch.device) -> None:
        self.device = device
        model = self.run.build_model("cpu")
        initialise(model, streams.init)
        model.fit(self.data.everything())
        self.model = model.to(device)

    def optimizer(self, training: TrainingConfig) -> torch.optim.Optimizer:
        model, own = self.model, self.run.training
        positional = {id(parameter) for parameter in model.positional_parameters()}
        groups = [
            {"params": [p for p in model.parameters() if id(p) not in positional], "lr_multiplier": 1.0},
            {
                "params": [p for p in model.parameters() if id(p) in positional],
                "lr_multiplier": own.position_lr_multiplier,
            },
        ]
        used = [group for group in groups if group["params"]]
        return torch.optim.AdamW(used, lr=own.lr, betas=(0.9, 0.99), weight_decay=own.weight_decay, fused=True)

    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        activations, positions = self.data.draw(generator, self.run.training.batch_size)
        return self.model.loss(activations.to(self.device), positions.to(self.device)), len(activations)

    def evaluate(self, streams: Streams) -> FeaturesMetrics:
        """Metrics on the first part of the held-out data during training, and on all of it at the end."""
        with torch.autocast(self.device.type, enabled=False):
            return self._metrics(streams.evaluation)

    def _metrics(self, stream: int) -> FeaturesMetrics:
        model, ended = self.model, int(self.model.done) >= self.run.training.steps
        held_out = []
        for activations, positions in self.data.held_out(stream):
            held_out.append((activations.to(self.device), positions.to(self.device)))
            if not ended:
                break
        first = feature_statistics(model, held_out[:1])
        final = dictionary_metrics(model, held_out, model.mask_values()) if ended else None
        truth = self.data.truth() if ended else {}
        fvu, l0 = (final.fvu, final.l0) if final else (first.fvu, first.l0)
        return FeaturesMetrics(
            headline={"FVU": fvu, "L0 (features)": l0},
            fvu=fvu,
            l0=l0,
            curve=first.fvu,
            final=final,
            recovery=recovery(model.directions.detach().cpu(), truth) if truth else {},
        )


def load_autoencoder(store: Store, text: str) -> tuple[Autoencoder, FeaturesRun]:
    """The autoencoder of a finished run, by the first digits of its id."""
    with open_finished_run(store, text) as (folder, run):
        if not isinstance(run, FeaturesRun):
            raise UserError(
                f"run: expected a run of 'whence features', got {folder.id}, a run of {run.kind}. "
                "See 'whence runs list'."
            )
        model = run.build_model("cpu")
        model.load_state_dict(weights_of(folder))
    return model.eval(), run
