"""One field model: its data, one seed."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from whence.errors import UserError
from whence.fields.baselines import LeastSquaresKernel, cell, grid, resize
from whence.fields.data import DATA, DataChoice
from whence.fields.data.base import Data, Split
from whence.fields.decode import Output, decode
from whence.fields.metrics import WINDOW, psnr, ssim
from whence.fields.model import SPREAD, Encoded, FieldModel, FieldSpec
from whence.models.init import initialise
from whence.models.sequence import count_parameters
from whence.random import Streams, generator
from whence.recordings import with_checksum
from whence.store.runs import Store, open_finished_run
from whence.training.checkpoint import weights_of
from whence.training.config import RunConfig, Trainable, TrainingConfig
from whence.training.optim import muon

FITTED = 256
"""Training crops that the least-squares kernel is fitted on."""
BESIDE = 0.05
"""Weight of the render's loss. It shares no weights with the field; it should only not fill the gradient's norm."""
HELD: tuple[Split, ...] = ("validation", "test")


def parse_data(value: Any) -> Any:
    """The name of a folder or file may stand for it, options behind a file: `mine.npy:axes=2`."""
    if not isinstance(value, str) or value.split(":")[0] in DATA.names():
        return value
    if Path(value).is_dir():
        return {"name": "folder", "path": value}
    name, found, options = value.partition(".npy")
    return f"arrays:path={name}.npy" + options.replace(":", ",", 1) if found else value


AnyData = Annotated[DataChoice, BeforeValidator(parse_data), AfterValidator(with_checksum)]


class FieldTraining(TrainingConfig):
    """How a model is trained."""

    steps: int = Field(default=1500, ge=1, description="optimiser steps")
    batch_size: int = Field(default=16, ge=1, description="signals per step")
    points: int = Field(default=512, ge=1, description="points per signal that a step asks for")
    lr: float = Field(default=2e-3, gt=0, description="peak learning rate")
    matrix_lr: float = Field(default=0.02, gt=0, description="peak learning rate of matrices under muon")
    optimizer: Literal["muon", "adamw"] = Field(default="muon", description="muon: for matrices; AdamW for the rest")
    warmup: int = Field(default=50, ge=0, description="steps of linear warm-up")
    weight_decay: float = Field(default=0.0, ge=0, description="on the weights of linear layers only")
    evaluations: int = Field(default=4, ge=1, description="evaluations after the one at step 0, evenly spaced")
    crops: int = Field(default=64, ge=2, le=4096, description="signals in each evaluation set")


class FieldsRun(RunConfig):
    """Train one field model."""

    kind: ClassVar[str] = "fields"
    data: AnyData = Field(default=DATA.choose("photos"), description="what to learn fields of")
    model: FieldSpec = FieldSpec()
    training: FieldTraining = FieldTraining()  # pyright: ignore[reportIncompatibleVariableOverride] (frozen)

    def labels(self) -> dict[str, str]:
        model = self.model
        return {
            "data": str(self.data),
            "encoder": str(model.mixer) if model.encoding.name == "none" else f"{model.mixer}+{model.encoding}",
            "lps": f"{model.lps} {model.placement}",
            "hyponet": str(model.hyponet),
        }

    def training_document(self) -> dict[str, Any]:
        document = super().training_document()
        del document["training"]["crops"]
        return document

    def check(self) -> int:
        cast(Data, self.data.build()).check()
        return self.parameters()

    def parameters(self) -> int:
        try:
            return _parameters(self.data.model_dump_json(), self.model.model_dump_json())
        except ValueError as error:
            raise UserError(str(error), field="model") from None

    def build_model(self, device: torch.device | str) -> FieldModel:
        data: Data = self.data.build()
        # where nothing finer is known than what is shown, there is nothing to render
        spec = self.model if data.true != data.inputs else self.model.model_copy(update={"render_width": 0})
        with torch.device(device):
            return spec.build(data.channels, data.inputs, self.seed)

    def job(self) -> FieldJob:
        return FieldJob(self)


@functools.lru_cache(maxsize=1024)
def _parameters(data: str, model: str) -> int:
    """Forms and searches for a size ask for many models, again and again."""
    return count_parameters(FieldsRun.read({"data": json.loads(data), "model": json.loads(model)}).build_model("meta"))


class FieldJob(Trainable):
    """Training at random scales against the true signal; evaluation beside interpolation and a fitted kernel."""

    def __init__(self, run: FieldsRun) -> None:
        self.run = run
        self.data: Data = run.data.build()
        self._references: dict[Split, dict[str, Any]] = {}
        self._kernels: dict[int, LeastSquaresKernel] = {}

    @property
    def training(self) -> FieldTraining:
        return self.run.training

    @property
    def field_model(self) -> FieldModel:
        return cast(FieldModel, self.model)

    def setup(self, streams: Streams, device: torch.device) -> None:
        self.device = device
        self.model = self.run.build_model(device)
        initialise(self.model, streams.init)

    def optimizer(self, training: TrainingConfig) -> torch.optim.Optimizer | None:
        mine = self.training
        return muon(self.model, mine.lr, mine.matrix_lr, mine.weight_decay) if mine.optimizer == "muon" else None

    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        model, data = self.field_model, self.data
        signals = data.draw(generator, self.training.batch_size, "train")
        size = self._random_size(generator)
        x = data.at(signals, data.inputs).to(self.device)
        encoded = model.encode(x)
        asked = self._asked(generator, signals, size)
        truth, at, width = asked
        loss = (model.field(encoded, at, width) - truth).square().mean() / SPREAD**2
        if model.renderer is not None:
            if size == data.inputs:  # where interpolation is right already
                twice = tuple(min(2 * a, b) for a, b in zip(size, data.true, strict=True))
                asked = self._asked(generator, signals, twice)
            truth, at, width = asked
            loss = loss + BESIDE * model.render_loss(x, encoded, at, width, truth)
        return loss, x.shape[0] * model.spec.lps

    def _asked(
        self, generator: torch.Generator, signals: Tensor, size: tuple[int, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Some points of a grid: what is true there, where they are, how wide their cells."""
        truth = self.data.at(signals, size).flatten(2).mT
        picked = torch.randperm(truth.shape[1], generator=generator)[: self.training.points]
        at = grid(size)[picked][None]
        return truth[:, picked].to(self.device), at.to(self.device), cell(size, self.device)

    def _random_size(self, generator: torch.Generator) -> tuple[int, ...]:
        """Half of the time the input's own or the finest, else anything between."""
        low, high = self.data.inputs[0], self.data.true[0]
        luck = float(torch.rand((), generator=generator))
        scale = 1.0 if luck < 0.25 else high / low if luck < 0.5 else 1 + (high / low - 1) * (2 * luck - 1)
        return tuple(round(count * scale) for count in self.data.inputs)

    def evaluate(self, streams: Streams) -> dict[str, Any]:
        """On signals never trained on, the same for every run: quality at each scale, what swapping tokens costs."""
        with torch.autocast(self.device.type, enabled=False):
            found = {split: self._look(streams, split) for split in HELD}
        first = found["validation"]["scales"]
        headline = {f"field ×{scale} (dB)": first[scale]["field"]["psnr"] for scale in list(first)[:1]}
        return {"headline": headline, **found}

    def _look(self, streams: Streams, split: Split) -> dict[str, Any]:
        reference = self.reference(streams, split)
        x, model = reference["x"].to(self.device), self.field_model
        encoded = model.encode(x)
        outputs: tuple[Output, ...] = ("field", "render") if model.renderer is not None else ("field",)
        scales: dict[str, Any] = {}
        for scale, truth in reference["truth"].items():
            size = tuple(truth.shape[2:])
            made = {
                o: decode(model, x, size, o, encoded).clamp(0, 1).cpu() for o in outputs if o == "field" or scale > 1
            }
            beside = reference["beside"][scale]
            scales[f"{scale:g}"] = {
                **{name: _quality(said, truth, beside) for name, said in made.items()},
                **{
                    name: {"psnr": float(found["psnr"].mean()), "ssim": found["ssim"]} for name, found in beside.items()
                },
            }
        swapped = decode(model, x, self.data.inputs, "field", encoded.swapped()).clamp(0, 1).cpu()
        own = next(iter(scales.values()))["field"]["psnr"]
        return {
            "scales": scales,
            "swap": {"psnr": float(psnr(swapped, reference["truth"][1.0]).mean()), "own": own},
            "diversity": diversity(encoded),
        }

    def reference(self, streams: Streams, split: Split) -> dict[str, Any]:
        """The frozen signals, and what interpolation and a fitted kernel make of them; worked out once."""
        if split in self._references:
            return self._references[split]
        data = self.data
        signals = data.draw(generator(streams.evaluation, "fields", self._what, split), self.training.crops, split)
        x = data.at(signals, data.inputs)
        most = data.true[0] // data.inputs[0]
        scales = sorted({1, 2, 4, most} & set(range(1, most + 1)))
        truth = {float(s): data.at(signals, tuple(s * n for n in data.inputs)) for s in scales}
        beside: dict[float, dict[str, Any]] = {scale: {} for scale in truth}
        for scale, true in truth.items():
            if scale > 1:
                made = {kind: resize(x, tuple(true.shape[2:]), kind) for kind in ("linear", "cubic")}
                if data.axes == 2:
                    made["kernel"] = self._kernel(streams, int(scale))(x)
                beside[scale] = {name: _scored(said.clamp(0, 1), true) for name, said in made.items()}
        self._references[split] = {"x": x, "truth": truth, "beside": beside}
        return self._references[split]

    @property
    def _what(self) -> str:
        """The data, wherever they lie."""
        choice = self.run.data
        return str(choice.model_copy(update={"path": ""}) if "path" in choice.options() else choice)

    def _kernel(self, streams: Streams, scale: int) -> LeastSquaresKernel:
        """The same for every split."""
        if scale not in self._kernels:
            data = self.data
            signals = data.draw(generator(streams.evaluation, "fields", self._what, "kernel"), FITTED, "train")
            high = data.at(signals, tuple(scale * n for n in data.inputs))
            self._kernels[scale] = LeastSquaresKernel().fit([(data.at(signals, data.inputs), high)])
        return self._kernels[scale]


def _scored(said: Tensor, truth: Tensor) -> dict[str, Any]:
    """Every signal's PSNR, and the mean SSIM."""
    alike = float(ssim(said, truth).mean()) if min(truth.shape[2:]) >= WINDOW else None
    return {"psnr": psnr(said, truth), "ssim": alike}


def _quality(said: Tensor, truth: Tensor, beside: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means, and on which share of the signals each reference is beaten."""
    found = _scored(said, truth)
    above = {name: float((found["psnr"] > other["psnr"]).double().mean()) for name, other in beside.items()}
    return {**found, "psnr": float(found["psnr"].mean()), "above": above}


def diversity(encoded: Encoded) -> dict[str, float]:
    """1 − mean cosine between the position tokens of one signal: raw, and after their mean is taken off."""
    found = {}
    for name, lps in (("raw", encoded.lps), ("centred", encoded.lps - encoded.lps.mean(1, keepdim=True))):
        unit = lps / lps.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        count = unit.shape[1]
        pairs = (unit.sum(1).square().sum(-1) - unit.square().sum((1, 2))) / max(1, count * (count - 1))
        found[name] = float(1 - pairs.mean())
    return found


def load(store: Store, word: str) -> tuple[FieldModel, FieldsRun]:
    """A finished run by the first digits of its id."""
    with open_finished_run(store, word) as (folder, run):
        if not isinstance(run, FieldsRun):
            raise UserError(f"run: {folder.id} is no field. Allowed: runs of 'whence fields train'.", field="run")
        model = run.build_model("cpu")
        model.load_state_dict(weights_of(folder))
    return model.eval(), run
