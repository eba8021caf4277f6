"""One run: train one field model with one seed."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from whence.errors import UserError
from whence.fields.attention import Encoded
from whence.fields.baselines import LeastSquaresKernel, cell, grid, resize
from whence.fields.config import AnyData, FieldModelConfig, FieldTrainingConfig, Output
from whence.fields.data import DATA
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
from whence.fields.model import STD, FieldModel
from whence.fields.signals import Split
from whence.models.init import initialise
from whence.models.sequence import activation_bytes, count_blocks
from whence.random import Streams, generator
from whence.store.runs import Store, open_finished_run
from whence.training.checkpoint import weights_of
from whence.training.config import RunConfig, Trainable, TrainingConfig
from whence.training.optim import muon

HELD_OUT_SPLITS: tuple[Split, ...] = ("validation", "test")
FITTED_CROPS = 256
"""Training crops that the least-squares kernel is fitted on."""
RENDER_WEIGHT = 0.05
"""Weight of the loss of the render. It shares no weights with the field; the factor keeps it from dominating the
gradient norm, which is clipped."""


class FieldsRun(RunConfig[FieldsMetrics, FieldTrainingConfig]):
    """Train one field model."""

    kind: ClassVar[str] = "fields"
    data: AnyData = Field(
        default=DATA.choose("photos"), description="signals: a name, a directory of images or FILE.npy"
    )
    model: FieldModelConfig = FieldModelConfig()
    training: FieldTrainingConfig = FieldTrainingConfig()

    def labels(self) -> dict[str, str]:
        model = self.model
        return {
            "data": str(self.data),
            "encoder": model.encoder,
            "lps": f"{model.lps} {model.placement} tokens",
            "hyponet": str(model.hyponet),
        }

    def training_document(self) -> dict[str, Any]:
        document = super().training_document()
        del document["training"]["crops"]
        return document

    def check(self) -> int:
        self.data.build().check()
        return self.parameters()

    def check_metrics(self, metrics: FieldsMetrics) -> None:
        scales = [level.scale for level in metrics.test.scales]
        if scales[:1] != [1] or scales != [level.scale for level in metrics.validation.scales]:
            raise ValueError(f"expected scales from 1 up, got {scales}")

    def working_bytes(self) -> int:
        """Signals, tokens, and the attention weights from pixels to position tokens."""
        data, training = self.data.build(), self.training
        tokens = math.prod(data.inputs) // self.model.patch**data.axes + self.model.lps
        pixels = min(training.pixels, math.prod(data.true))
        return max(
            activation_bytes(
                self.model, self.model.encoding.variant.hooks(), training.batch_size, tokens, training=True
            ),
            4 * training.batch_size * pixels * self.model.lps,
            4 * max(training.batch_size, training.crops) * data.channels * math.prod(data.true),
        )

    def parameters(self) -> int:
        try:
            return _parameters(self.model_dump_json(include={"data", "model"}))
        except ValueError as error:
            raise UserError(str(error), field="model") from None

    def build_model(self, device: torch.device | str) -> FieldModel:
        data = self.data.build()
        # without a target finer than the input there is nothing to render
        config = self.model if data.true != data.inputs else self.model.model_copy(update={"render_width": 0})
        with torch.device(device):
            return FieldModel(config, data.channels, data.inputs, self.seed)

    def job(self) -> FieldJob:
        return FieldJob(self)


@functools.lru_cache(maxsize=1024)
def _parameters(document: str) -> int:
    """Cached, because forms and searches for a size call it often."""
    run = FieldsRun.model_validate_json(document)

    def build(layers: int) -> FieldModel:
        model = run.model.model_copy(update={"layers": layers})
        return run.model_copy(update={"model": model}).build_model("meta")

    return count_blocks(run.model.layers, build)


def load_model(store: Store, text: str) -> tuple[FieldModel, FieldsRun]:
    """Load the model of a finished run by its id or the first digits of it."""
    with open_finished_run(store, text) as (folder, run):
        if not isinstance(run, FieldsRun):
            raise UserError(
                f"run: expected a run of fields, got {folder.id}, a run of {run.kind}. List runs with: whence runs list"
            )
        model = run.build_model("cpu")
        model.load_state_dict(weights_of(folder))
    return model.eval(), run


@dataclass(frozen=True)
class HeldOut:
    """Held-out signals at one scale, with the PSNR of every signal and the mean quality of the baselines."""

    scale: int
    truth: Tensor
    psnr: dict[str, Tensor]
    baselines: dict[str, MethodQuality]


class FieldJob(Trainable[FieldModel]):
    """Training at random scales; evaluation against interpolation and a least-squares kernel."""

    def __init__(self, run: FieldsRun) -> None:
        self.run = run
        self.data = run.data.build()

    def setup(self, streams: Streams, device: torch.device) -> None:
        self.device, self.streams = device, streams
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
        at, width, truth = self._target(generator, signals, size)
        loss = (model.field(encoded, at, width) - truth).square().mean() / STD**2
        if model.renderer is not None:
            if size == data.inputs:  # interpolation is exact there
                twice = tuple(min(2 * a, b) for a, b in zip(size, data.true, strict=True))
                at, width, truth = self._target(generator, signals, twice)
            loss = loss + RENDER_WEIGHT * model.render_loss(x, encoded, at, width, truth)
        return loss, x.shape[0] * model.config.lps

    def _target(self, generator: torch.Generator, signals: Tensor, size: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Random pixels of a grid: their coordinates, the width of their cells, and their target values."""
        truth = self.data.at(signals, size).flatten(2).mT
        picked = torch.randperm(truth.shape[1], generator=generator)[: self.run.training.pixels]
        at = grid(size)[picked][None]
        return at.to(self.device), cell(size, self.device), truth[:, picked].to(self.device)

    def _random_size(self, generator: torch.Generator) -> tuple[int, ...]:
        """With probability 1/4 each the input and the finest resolution, otherwise uniform between them."""
        low, high = self.data.inputs[0], self.data.true[0]
        draw = float(torch.rand((), generator=generator))
        scale = 1.0 if draw < 0.25 else high / low if draw < 0.5 else 1 + (high / low - 1) * (2 * draw - 1)
        return tuple(round(count * scale) for count in self.data.inputs)

    def evaluate(self, streams: Streams) -> FieldsMetrics:
        """Quality at each scale and with swapped tokens, on held-out signals that all runs of a seed share."""
        with torch.autocast(self.device.type, enabled=False):
            splits = {split: self._evaluate(*held_out) for split, held_out in self._held_out.items()}
        first = splits["validation"].scales[0]
        return FieldsMetrics(headline={f"field ×{first.scale} (dB)": first.field.psnr}, **splits)

    def _evaluate(self, inputs: Tensor, levels: Sequence[HeldOut]) -> SplitMetrics:
        model, x = self.model, inputs.to(self.device)
        encoded = model.encode(x)

        def decoded(output: Output, truth: Tensor, tokens: Encoded = encoded) -> Tensor:
            return decode(model, x, tuple(truth.shape[2:]), output, tokens).clamp(0, 1).cpu()

        scales = []
        for level in levels:
            outputs: list[Output] = ["field"] if level.scale == 1 or model.renderer is None else ["field", "render"]
            made = {name: quality(decoded(name, level.truth), level.truth, level.psnr) for name in outputs}
            scales.append(ScaleQuality(scale=level.scale, **made, **level.baselines))
        own = levels[0].truth
        swapped = float(psnr(decoded("field", own, encoded.swapped()), own).mean())
        swap = SwapQuality(psnr=swapped, own=scales[0].field.psnr)
        return SplitMetrics(scales=scales, swap=swap, diversity=diversity(encoded))

    @functools.cached_property
    def _held_out(self) -> dict[Split, tuple[Tensor, list[HeldOut]]]:
        """By split, the inputs and the targets at every scale; computed once."""
        data, held_out = self.data, {}
        finest = data.true[0] // data.inputs[0]
        scales = sorted({min(scale, finest) for scale in (1, 2, 4, finest)})
        sizes = {scale: tuple(scale * count for count in data.inputs) for scale in scales}
        kernels = {}
        if data.axes == 2 and finest > 1:
            known = self._draw("kernel", FITTED_CROPS, "train")
            low = data.at(known, data.inputs)
            kernels = {scale: LeastSquaresKernel.fit(low, data.at(known, sizes[scale])) for scale in scales[1:]}
        for split in HELD_OUT_SPLITS:
            signals = self._draw(split, self.run.training.crops, split)
            x, levels = data.at(signals, data.inputs), []
            for scale, size in sizes.items():
                truth = data.at(signals, size)
                made = {kind: resize(x, size, kind) for kind in ("linear", "bicubic")} if scale > 1 else {}
                made |= {"kernel": kernels[scale](x)} if scale in kernels else {}
                clipped = {name: values.clamp(0, 1) for name, values in made.items()}
                qualities = {name: quality(values, truth) for name, values in clipped.items()}
                levels.append(HeldOut(scale, truth, {n: psnr(one, truth) for n, one in clipped.items()}, qualities))
            held_out[split] = x, levels
        return held_out

    def _draw(self, what: str, count: int, split: Split) -> Tensor:
        """Draw signals. The draw does not depend on the path of their files."""
        data = self.run.data
        name = data.model_copy(update={"path": ""}) if "path" in data.options() else data
        return self.data.draw(generator(self.streams.evaluation, "fields", str(name), what), count, split)


def diversity(encoded: Encoded) -> Diversity:
    def of(lps: Tensor) -> float:
        unit = functional.normalize(lps, dim=-1)
        count = unit.shape[1]
        cosines = (unit.sum(1).square().sum(-1) - unit.square().sum((1, 2))) / max(1, count * (count - 1))
        return float(1 - cosines.mean())

    return Diversity(raw=of(encoded.lps), centred=of(encoded.lps - encoded.lps.mean(1, keepdim=True)))
