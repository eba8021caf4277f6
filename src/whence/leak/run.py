"""One masked model: its data, its mitigations, one seed."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from whence.config import Config
from whence.errors import UserError
from whence.leak.audit.auditing import measure_ratio
from whence.leak.audit.measures import Sample
from whence.leak.audit.target import AuditTarget
from whence.leak.data import DATA, DataChoice, RecordingData, Split
from whence.leak.masks import Pattern, draw
from whence.leak.metrics import MASK_RATIOS, LeakMetrics
from whence.leak.mitigations import Mitigation, MitigationChoice, PenaltyInput
from whence.leak.model import MaskedModel, MaskedSpec
from whence.models.init import initialise
from whence.models.sequence import activation_bytes, count_blocks
from whence.random import Streams, generator
from whence.recordings import with_checksum
from whence.training.config import RunConfig, Trainable, TrainingConfig

REPLACED = {
    "zeros": "Masked tokens are set to 0.",
    "noise": "Masked tokens are replaced by noise, drawn at every forward pass.",
    "learned": "Masked tokens are replaced by one learned vector.",
}
FITTED = 1024
"""Training examples from each half of the recordings that a mitigation may be fitted on before training."""


def parse_data(value: Any) -> Any:
    """Accept the path of a .npy file, with options after a colon: `mine.npy:steps=32`."""
    if not isinstance(value, str) or value.startswith("file:") or ".npy" not in value:
        return value
    name, _, options = value.partition(".npy")
    return f"file:path={name}.npy" + options.replace(":", ",", 1)


def parse_mitigations(value: Any) -> Any:
    """Accept `"zero_masked_positions+variance_penalty"`, `"none"` and `"all"` (`ROOT_CAUSE_MITIGATIONS`)."""
    if not isinstance(value, str):
        return value
    names = {"none": "", "all": "+".join(ROOT_CAUSE_MITIGATIONS)}.get(value, value)
    return tuple(filter(None, names.split("+")))


ROOT_CAUSE_MITIGATIONS = ("zero_masked_positions", "variance_penalty", "position_penalty", "permute_tokens")
"""The mitigations of "Position Leakage Root Cause Analysis"."""
Mitigations = Annotated[tuple[MitigationChoice, ...], BeforeValidator(parse_mitigations)]
AnyData = Annotated[DataChoice, BeforeValidator(parse_data), AfterValidator(with_checksum)]


Loss = Literal["mse", "mae", "huber", "cosine", "combined"]


class Masking(Config):
    """Masks and the reconstruction loss."""

    mask_ratio: float | None = Field(
        default=None, gt=0, le=1, description="share of tokens masked in training; none: drawn for every batch"
    )
    pattern: Pattern = Field(
        default="random",
        description="random: tokens at random; blocks: runs of four tokens; tail: the last tokens, as in forecasting",
    )
    loss: Loss = Field(
        default="mse", description="reconstruction loss at masked tokens; combined: mse and a tenth of cosine"
    )
    test_rows: int = Field(default=256, ge=8, le=10_000, description="examples in each evaluation set")


class MaskedTraining(TrainingConfig):
    """How a model is trained."""

    steps: int = Field(default=600, ge=1, le=10**9, description="optimiser steps")
    batch_size: int = Field(default=32, ge=1, le=2**20, description="examples per step")
    evaluations: int = Field(
        default=2, ge=1, le=10_000, description="evaluations after the one at step 0, evenly spaced"
    )


class LeakRun(RunConfig[LeakMetrics, MaskedTraining]):
    """Train one masked model."""

    kind: ClassVar[str] = "leak"
    data: AnyData = Field(
        default=DATA.choose("basic_motions"),
        description=f"recordings to mask and reconstruct: {', '.join(DATA.names())}, or a .npy file",
    )
    mitigations: Mitigations = Field(
        default=(),
        max_length=32,
        description='mitigations, joined by +; none; or all: the four of "Position Leakage Root Cause Analysis"',
    )
    model: MaskedSpec = MaskedSpec()
    masking: Masking = Masking()
    training: MaskedTraining = MaskedTraining()

    def labels(self) -> dict[str, str]:
        return {"data": str(self.data), "backbone": str(self.model.backbone), "mitigations": self.mitigation}

    def training_document(self) -> dict[str, Any]:
        document = super().training_document()
        del document["masking"]["test_rows"]
        return document

    @property
    def mitigation(self) -> str:
        """The mitigations as one string, as on the command line."""
        names = [str(choice) for choice in self.mitigations]
        return "all" if tuple(names) == ROOT_CAUSE_MITIGATIONS else "+".join(names) or "none"

    def check(self) -> int:
        names = [choice.name for choice in self.mitigations]
        if len(set(names)) != len(names):
            raise UserError(f"mitigations: expected each once, got {self.mitigation}. Remove the repeated one.")
        try:
            return count_blocks(self.model.layers, self._with_layers)
        except ValueError as error:
            raise UserError(str(error), field="model") from None

    def check_metrics(self, metrics: LeakMetrics) -> None:
        if not set(MASK_RATIOS) <= set(metrics.ratios):
            raise ValueError(f"expected mask ratios {MASK_RATIOS}, got {tuple(metrics.ratios)}")

    def working_bytes(self) -> int:
        data: RecordingData = self.data.build()
        tokens, _ = self.model.shape(data.steps, data.channels)
        hooks = self.model.temporal.variant.hooks()
        rows = max(self.training.batch_size, FITTED, self.masking.test_rows)
        return max(
            activation_bytes(self.model, hooks, self.training.batch_size, tokens, training=True),
            4 * rows * data.channels * data.drawn_steps,
        )

    def _with_layers(self, layers: int) -> MaskedModel:
        model = self.model.model_copy(update={"layers": layers})
        return self.model_copy(update={"model": model}).build_model("meta")

    def build_model(self, device: torch.device | str) -> MaskedModel:
        data: RecordingData = self.data.build()
        tokens, features = self.model.shape(data.steps, data.channels)
        with torch.device(device):
            sizes = {"d_model": self.model.d_model, "tokens": tokens, "features": features}
            mitigations: list[Mitigation] = [choice.build(**sizes) for choice in self.mitigations]
            return self.model.build(tokens, features, data.channels, mitigations)

    def job(self) -> LeakJob:
        return LeakJob(self)


class LeakJob(Trainable[MaskedModel]):
    """Training on windows with masked tokens; evaluation at several mask ratios."""

    def __init__(self, run: LeakRun) -> None:
        self.run = run
        self.data: RecordingData = run.data.build()
        self.positions = run.model.positions(self.data.steps, self.data.channels)

    def setup(self, streams: Streams, device: torch.device) -> None:
        self.device = device
        self.model = self.run.build_model(device)
        initialise(self.model, streams.init)
        places = [generator(streams.evaluation, "fit", str(self.run.data), half) for half in (0, 1)]
        some, others = (self.tokens(place, FITTED, "train", half).to(device) for half, place in enumerate(places))
        for mitigation in self.model.active:
            mitigation.fit(some, others)

    def tokens(self, place: torch.Generator, rows: int, split: Split, half: int | None = None) -> Tensor:
        return self.run.model.tokens(self.data.draw(place, rows, split, half))

    def step(self, generator: torch.Generator) -> tuple[Tensor, int]:
        masking = self.run.masking
        tokens = self.tokens(generator, self.run.training.batch_size, "train")
        ratio = masking.mask_ratio
        if ratio is None:  # 1 for a quarter of the batches, so that predictions without any content are trained, too
            draw_ = float(torch.rand((), generator=generator))
            ratio = 1.0 if draw_ > 0.75 else 0.1 + 1.2 * draw_
        masked = draw(generator, tokens.shape[0], tokens.shape[1], ratio, masking.pattern)
        tokens, masked, positions = (t.to(self.device) for t in (tokens, masked, self.positions))
        predicted = self.model(tokens, masked, positions)[masked]
        error = reconstruction(masking.loss, predicted, tokens[masked])
        place = positions[..., 0].expand_as(masked)[masked]
        step = PenaltyInput(predicted, place, float(masked.float().mean()), error)
        penalties = [penalty for mitigation in self.model.active if (penalty := mitigation.penalty(step)) is not None]
        return error + sum(penalties, torch.zeros_like(error)), masked.numel()

    def evaluate(self, streams: Streams) -> LeakMetrics:
        """Leakage and error at every mask ratio, on the same test examples for every run."""
        target = self.audit_target()
        with torch.autocast(self.device.type, enabled=False):  # half-precision rounding would be measured as leakage
            ratios = {r: measure_ratio(target, lambda r=r: self.sample(streams, r), r)[1] for r in MASK_RATIOS}
        headline = {f"normalized MSE (mask ratio {ratio})": ratios[ratio].error for ratio in (0.5, 0.9)}
        return LeakMetrics(headline=headline, ratios=ratios)

    @property
    def stride(self) -> int:
        return self.data.channels if self.run.model.layout == "time_channel" else 1

    def audit_target(self, rows: int = 64) -> AuditTarget:
        """The model with held-out examples, for audits."""
        model, positions = self.model, self.positions.to(self.device)
        place = generator(Streams.of(0).evaluation, "audit", str(self.run.data))
        return AuditTarget(
            " · ".join(self.run.labels().values()),
            model,
            self.tokens(place, rows, "test").to(self.device),
            predict=lambda tokens, masked: model(tokens, masked.to(self.device), positions),
            target=lambda tokens: tokens,
            layers=("embedded", *(f"blocks.{i}" for i in range(len(model.blocks)))),
            mask_module="shown",
            stride=self.stride,
            pattern=self.run.masking.pattern,
            mask_description=REPLACED[self.run.model.replacement],
        )

    def sample(self, streams: Streams, ratio: float, split: Split = "test") -> Sample:
        """Predictions of masked tokens of a frozen set of examples."""
        place = generator(streams.evaluation, split, str(self.run.data), f"{ratio:g}")
        tokens = self.tokens(place, self.run.masking.test_rows, split)
        masked = draw(place, tokens.shape[0], tokens.shape[1], ratio, self.run.masking.pattern)
        predicted = self.model(*(t.to(self.device) for t in (tokens, masked, self.positions))).cpu()
        return Sample(predicted, tokens, masked, self.positions[0, :, 0], self.stride)


def reconstruction(kind: Loss, prediction: Tensor, target: Tensor) -> Tensor:
    """Loss over masked tokens; both tensors are (tokens, features). combined: mse plus a tenth of cosine."""
    if kind == "mae":
        return F.l1_loss(prediction, target)
    if kind == "huber":
        return F.huber_loss(prediction, target)
    cosine = 1 - F.cosine_similarity(prediction, target, dim=-1).mean()
    if kind == "cosine":
        return cosine
    error = F.mse_loss(prediction, target)
    return error if kind == "mse" else error + 0.1 * cosine
