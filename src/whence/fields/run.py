"""One field model: its data, one seed."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from whence.errors import UserError
from whence.fields.baselines import LeastSquaresKernel, cell, grid, resize
from whence.fields.config import AnyData, FieldModelConfig, FieldTrainingConfig, Output
from whence.fields.data import DATA
from whence.fields.data.base import Split
from whence.fields.decode import decode
from whence.fields.metrics import (
    Diversity,
    FieldsMetrics,
    MethodQuality,
    ScaleQuality,
    SplitMetrics,
    SwapQuality,
    psnr,
    quality,
)
from whence.fields.model import STD, Encoded, FieldModel
from whence.models.init import initialise
from whence.models.sequence import count_parameters
from whence.random import Streams, generator
from whence.store.runs import Store, open_finished_run
from whence.training.checkpoint import weights_of
from whence.training.config import RunConfig, Trainable, TrainingConfig
from whence.training.optim import muon

FITTED_CROPS = 256
"""Training crops that the least-squares kernel is fitted on."""
RENDER_WEIGHT = 0.05
"""Of the render's loss. It shares no weights with the field; it should only not fill the gradient's norm."""


class FieldsRun(RunConfig[FieldsMetrics, FieldTrainingConfig]):
    """Train one field model."""

    kind: ClassVar[str] = "fields"
    data: AnyData = Field(default=DATA.choose("photos"), description="what to learn fields of")
    model: FieldModelConfig = FieldModelConfig()
    training: FieldTrainingConfig = FieldTrainingConfig()

    def labels(self) -> dict[str, str]:
        model = self.model
        return {
            "data": str(self.data),
            "encoder": model.encoder,
            "lps": f"{model.lps} {model.placement}",
            "hyponet": str(model.hyponet),
        }

    def training_document(self) -> dict[str, Any]:
        document = super().training_document()
        del document["training"]["crops"]
        return document

    def check(self) -> int:
        self.data.build().check()
        return self.parameters()

    def parameters(self) -> int:
        try:
            return _parameters(self.data.model_dump_json(), self.model.model_dump_json())
        except ValueError as error:
            raise UserError(str(error), field="model") from None

    def build_model(self, device: torch.device | str) -> FieldModel:
        data = self.data.build()
        # where nothing finer is known than the input, there is nothing to render
        config = self.model if data.true != data.inputs else self.model.model_copy(update={"render_width": 0})
        with torch.device(device):
            return FieldModel(config, data.channels, data.inputs, self.seed)

    def job(self) -> FieldJob:
        return FieldJob(self)


@functools.lru_cache(maxsize=1024)
def _parameters(data: str, model: str) -> int:
    """Forms and searches for a size ask for many models, again and again."""
    return count_parameters(FieldsRun.read({"data": json.loads(data), "model": json.loads(model)}).build_model("meta"))


def load_model(store: Store, text: str) -> tuple[FieldModel, FieldsRun]:
    """A finished run by the first digits of its id."""
    with open_finished_run(store, text) as (folder, run):
        if not isinstance(run, FieldsRun):
            raise UserError(f"run: {folder.id} is no field. Allowed: runs of 'whence fields train'.")
        model = run.build_model("cpu")
        model.load_state_dict(weights_of(folder))
    return model.eval(), run


@dataclass(frozen=True)
class Target:
    """Some pixels of a grid: the true values there, where they are, how wide their cells are."""

    truth: Tensor
    at: Tensor
    width: Tensor


@dataclass(frozen=True)
class EvaluationSet:
    """Held-out signals, and by scale the truth and the baselines: PSNR of every signal, and means."""

    inputs: Tensor
    truth: dict[int, Tensor]
    baselines: dict[int, dict[str, MethodQuality]]
    baseline_psnr: dict[int, dict[str, Tensor]]


class FieldJob(Trainable[FieldModel]):
    """Training at random scales against the true signal; evaluation beside interpolation and a fitted kernel."""

    def __init__(self, run: FieldsRun) -> None:
        self.run = run
        self.data = run.data.build()
        self._evaluation_sets: dict[Split, EvaluationSet] = {}
        self._kernels: dict[int, LeastSquaresKernel] = {}

    def setup(self, streams: Streams, device: torch.device) -> None:
        self.device = device
        self.model = self.run.build_model(device)
        initialise(self.model, streams.init)

    def optimizer(self, training: TrainingConfig) -> torch.optim.Optimizer | None:
        mine = self.run.training
        return muon(self.model, mine.lr, mine.matrix_lr, mine.weight_decay) if mine.optimizer == "muon" else None

    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        model, data = self.model, self.data
        signals = data.draw(generator, self.run.training.batch_size, "train")
        size = self._random_size(generator)
        x = data.at(signals, data.inputs).to(self.device)
        encoded = model.encode(x)
        target = self._target(generator, signals, size)
        loss = (model.field(encoded, target.at, target.width) - target.truth).square().mean() / STD**2
        if model.renderer is not None:
            if size == data.inputs:  # where interpolation is right already
                twice = tuple(min(2 * a, b) for a, b in zip(size, data.true, strict=True))
                target = self._target(generator, signals, twice)
            loss = loss + RENDER_WEIGHT * model.render_loss(x, encoded, target.at, target.width, target.truth)
        return loss, x.shape[0] * model.config.lps

    def _target(self, generator: torch.Generator, signals: Tensor, size: tuple[int, ...]) -> Target:
        truth = self.data.at(signals, size).flatten(2).mT
        picked = torch.randperm(truth.shape[1], generator=generator)[: self.run.training.pixels]
        at = grid(size)[picked][None]
        return Target(truth[:, picked].to(self.device), at.to(self.device), cell(size, self.device))

    def _random_size(self, generator: torch.Generator) -> tuple[int, ...]:
        """Half of the time the input's own or the finest, else anything between."""
        low, high = self.data.inputs[0], self.data.true[0]
        draw = float(torch.rand((), generator=generator))
        scale = 1.0 if draw < 0.25 else high / low if draw < 0.5 else 1 + (high / low - 1) * (2 * draw - 1)
        return tuple(round(count * scale) for count in self.data.inputs)

    def evaluate(self, streams: Streams) -> FieldsMetrics:
        """On held-out signals, the same for every run of a seed: quality at each scale, what swapping tokens costs."""
        with torch.autocast(self.device.type, enabled=False):
            validation, test = (self._evaluate(streams, split) for split in ("validation", "test"))
        first = validation.scales[0]
        return FieldsMetrics(
            headline={f"field ×{first.scale} (dB)": first.field.psnr}, validation=validation, test=test
        )

    def _evaluate(self, streams: Streams, split: Split) -> SplitMetrics:
        known, model = self.evaluation_set(streams, split), self.model
        x = known.inputs.to(self.device)
        encoded = model.encode(x)

        def decoded(output: Output, truth: Tensor, tokens: Encoded = encoded) -> Tensor:
            return decode(model, x, tuple(truth.shape[2:]), output, tokens).clamp(0, 1).cpu()

        scales = []
        for scale, truth in known.truth.items():
            outputs: list[Output] = ["field", "render"] if scale > 1 and model.renderer is not None else ["field"]
            made = {output: quality(decoded(output, truth), truth, known.baseline_psnr[scale]) for output in outputs}
            scales.append(ScaleQuality(scale=scale, **made, **known.baselines[scale]))
        swapped = psnr(decoded("field", known.truth[1], encoded.swapped()), known.truth[1])
        swap = SwapQuality(psnr=float(swapped.mean()), own=scales[0].field.psnr)
        return SplitMetrics(scales=scales, swap=swap, diversity=diversity(encoded))

    def evaluation_set(self, streams: Streams, split: Split) -> EvaluationSet:
        """The signals, and what interpolation and a fitted kernel make of them; computed once."""
        if split not in self._evaluation_sets:
            data, crops = self.data, self.run.training.crops
            signals = data.draw(generator(streams.evaluation, "fields", self._data_name, split), crops, split)
            x = data.at(signals, data.inputs)
            most = data.true[0] // data.inputs[0]
            scales = sorted({1, 2, 4, most} & set(range(1, most + 1)))
            truth = {scale: data.at(signals, tuple(scale * n for n in data.inputs)) for scale in scales}
            made = {scale: self._baselines(streams, x, scale) if scale > 1 else {} for scale in scales}
            self._evaluation_sets[split] = EvaluationSet(
                x,
                truth,
                {s: {name: quality(values, truth[s]) for name, values in made[s].items()} for s in scales},
                {s: {name: psnr(values, truth[s]) for name, values in made[s].items()} for s in scales},
            )
        return self._evaluation_sets[split]

    def _baselines(self, streams: Streams, x: Tensor, scale: int) -> dict[str, Tensor]:
        size = tuple(scale * n for n in x.shape[2:])
        made = {kind: resize(x, size, kind) for kind in ("linear", "bicubic")}
        if self.data.axes == 2:
            made["kernel"] = self._kernel(streams, scale)(x)
        return {name: values.clamp(0, 1) for name, values in made.items()}

    @property
    def _data_name(self) -> str:
        """The data, wherever they lie."""
        choice = self.run.data
        return str(choice.model_copy(update={"path": ""}) if "path" in choice.options() else choice)

    def _kernel(self, streams: Streams, scale: int) -> LeastSquaresKernel:
        """The same for every split."""
        if scale not in self._kernels:
            data = self.data
            random = generator(streams.evaluation, "fields", self._data_name, "kernel")
            signals = data.draw(random, FITTED_CROPS, "train")
            high = data.at(signals, tuple(scale * n for n in data.inputs))
            self._kernels[scale] = LeastSquaresKernel().fit([(data.at(signals, data.inputs), high)])
        return self._kernels[scale]


def diversity(encoded: Encoded) -> Diversity:
    return Diversity(raw=_diversity(encoded.lps), centred=_diversity(encoded.lps - encoded.lps.mean(1, keepdim=True)))


def _diversity(lps: Tensor) -> float:
    unit = lps / lps.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    count = unit.shape[1]
    cosines = (unit.sum(1).square().sum(-1) - unit.square().sum((1, 2))) / max(1, count * (count - 1))
    return float(1 - cosines.mean())
