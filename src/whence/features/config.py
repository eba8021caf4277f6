"""Everything of the features instrument that can be configured: training, comparisons, collecting and evaluations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from whence.config import Config
from whence.experiments.instrument import MOST_VARIANTS, ComparisonConfig
from whence.experiments.options import positional
from whence.experiments.saved import Presets
from whence.features.activations.store import SHARD, ActivationSite
from whence.features.activations.text import PROBES
from whence.features.data import DATA, ActivationData
from whence.features.sae.centering import CENTERINGS, Centering
from whence.features.sae.encoders import ENCODERS, Encoder
from whence.features.sae.inits import INITS, Init
from whence.features.sae.losses import LOSSES, Loss
from whence.features.sae.masks import MASKS, Mask
from whence.features.sae.norms import NORMS, Norm
from whence.features.sae.schedules import SCHEDULES, Schedule
from whence.features.sae.sparsity import SPARSITY, Sparsity
from whence.recordings import with_checksum
from whence.registry import Choice
from whence.training.config import TrainingConfig

ALL, OWN = "all", "own"
OrderTask = Literal["first", "halves", "thirds"]


class AutoencoderConfig(Config):
    """What an autoencoder is composed of."""

    d_sae: int = Field(default=2048, ge=1, le=2**20, description="features")
    centering: Annotated[Choice[Centering], CENTERINGS] = Field(
        default=CENTERINGS.choose("mean"), description="subtracted from activations beforehand"
    )
    encoder: Annotated[Choice[Encoder], ENCODERS] = Field(
        default=ENCODERS.choose("shared"), description="activations to pre-activations"
    )
    norm: Annotated[Choice[Norm], NORMS] = Field(
        default=NORMS.choose("none"), description="of all pre-activations of an activation"
    )
    mask: Annotated[Choice[Mask], MASKS] = Field(
        default=MASKS.choose("none"), description="which features are active where"
    )
    sparsity: Annotated[Choice[Sparsity], SPARSITY] = Field(
        default=SPARSITY.choose("topk"), description="what keeps codes sparse"
    )
    losses: tuple[Annotated[Choice[Loss], LOSSES], ...] = Field(
        default=(), max_length=32, description="loss terms besides reconstruction"
    )
    position_schedule: Annotated[Choice[Schedule], SCHEDULES] = Field(
        default=SCHEDULES.choose("constant"), description="how position comes in"
    )
    init: Annotated[Choice[Init], INITS] = Field(default=INITS.choose("unit"), description="initial directions")
    position_ablated: bool = Field(
        default=False, description="control: nothing is masked, all activations have one position"
    )

    @property
    def uses_positions(self) -> bool:
        """Whether any part depends on the position of an activation."""
        plain = AutoencoderConfig()
        return any(getattr(self, part) != getattr(plain, part) for part in ("centering", "encoder", "mask", "losses"))


class FeaturesTraining(TrainingConfig):
    """How an autoencoder is trained."""

    steps: int = Field(default=400, ge=1, le=10**9, description="optimiser steps")
    batch_size: int = Field(default=1024, ge=1, le=2**20, description="activations per step")
    lr: float = Field(default=8e-3, gt=0, le=1e38, description="peak learning rate")
    position_lr_multiplier: float = Field(
        default=10.0, gt=0, le=1e6, description="learning rate of parameters that are about position, in terms of lr"
    )
    warmup: int = Field(default=30, ge=0, le=10**9, description="steps of linear warm-up")
    weight_decay: float = Field(default=0.0, ge=0, le=1e6, description="of all parameters")
    clip: float = Field(default=1000.0, gt=0, le=1e38, description="largest norm of the gradient")
    evaluations: int = Field(
        default=5, ge=1, le=10_000, description="evaluations after the one at step 0, evenly spaced"
    )


def parse_data(value: Any) -> Any:
    """The folder of a collection may stand for it."""
    if not isinstance(value, str) or value.split(":")[0] in DATA.names():
        return value
    return {"name": "stored", "path": value}


DataChoice = Annotated[Choice[ActivationData], DATA, BeforeValidator(parse_data), AfterValidator(with_checksum)]


class FeaturesConfig(ComparisonConfig):
    """What to compare, on what."""

    presets: tuple[str, ...] = Field(
        default=(ALL,), min_length=1, max_length=MOST_VARIANTS, description="names ('whence features presets'), or all"
    )
    data: DataChoice = Field(default=DATA.choose("synthetic"), description="activations to learn features of")
    d_sae: int = Field(default=0, ge=0, le=2**20, description="features; 0: as usual for the data")
    l0: int = Field(
        default=0, ge=0, le=2**20, description="active features that all are brought to; 0: as usual for the data"
    )
    sparsity: str = Field(default=OWN, description="own: each preset's; or one for all of them, as topk or l1")
    controls: bool = Field(
        default=False,
        description="beside each preset, itself without positions; beside larger ones, a plain one of their size",
    )
    training: FeaturesTraining = FeaturesTraining()

    @property
    def variants(self) -> int:
        """At most: each preset has up to two controls."""
        own = Presets("whence.features", AutoencoderConfig).names() if self.presets == (ALL,) else self.presets
        return len(own) * (3 if self.controls else 1)

    @property
    def title(self) -> str:
        shape = self.data.build().shape
        name = str(self.data.options().get("path") or self.data).split("/")[-1]
        d_sae, l0 = self.d_sae or shape.default_d_sae, self.l0 or shape.default_l0
        sparsity = "" if self.sparsity == OWN else f", {self.sparsity}"
        return f"{name}, {d_sae} features, L0 {l0:g}{sparsity}, {self.training.steps} steps"


class CollectConfig(ActivationSite):
    """Which activations of which model, on which text."""

    model: str = Field(
        default="minilm",
        description="minilm, smollm2, a directory with a transformers model, or run:ID, a run of the arena",
    )
    tokens: int = Field(default=500_000, ge=1, le=10**9, description="activations, special tokens not counted")
    text: str = Field(default=PROBES, description="probes: the packaged labelled sets; or a text file")
    batch_size: int = Field(default=16, ge=1, le=SHARD, description="sequences at once")
    name: str = Field(default="", description="of the collection; none: model and layer")


class EvaluateConfig(Config):
    """One dictionary, on which activations."""

    target: str = Field(
        default="",
        description="a run, or a directory as SAELens writes it",
        json_schema_extra=positional("RUN|DIR"),
    )
    activations: str = Field(default="", description="name of a collection; none: what a run was trained on")


class ProbeConfig(Config):
    """What is read from features."""

    runs: tuple[str, ...] = Field(
        default=(), max_length=64, description="trained on the same collection", json_schema_extra=positional("RUN")
    )
    sets: tuple[str, ...] = Field(
        default=(), max_length=256, description="labelled sets that come with sae-probes; none: five of them"
    )
    order: tuple[OrderTask, ...] = Field(
        default=("first", "halves", "thirds"),
        max_length=3,
        description="which of two words came first; halves exchanged; first or last third",
    )
    train: int = Field(default=4000, ge=20, le=10**6, description="texts of a set to learn from")
    test: int = Field(default=1000, ge=20, le=10**6, description="texts of a set to be judged on")
    by_position: bool = Field(default=False, description="also from one range of positions at a time")
    mask_off: bool = Field(default=False, description="without masks over positions")


class SpliceConfig(Config):
    """What is done to a language model."""

    runs: tuple[str, ...] = Field(
        default=(), max_length=64, description="trained on the same collection", json_schema_extra=positional("RUN")
    )
    what: Literal["both", "recovered", "unlearning"] = Field(default="both", description="which evaluation")
    sequences: int = Field(
        default=32, ge=1, le=10**6, description="held-out sequences that cross-entropies are taken on"
    )
    mask_off: bool = Field(default=False, description="cross-entropies without masks over positions")


class ShowConfig(Config):
    """Whose features."""

    run: str = Field(default="", description="a finished run")
