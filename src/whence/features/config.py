"""Configurations of the features instrument: collecting, training, comparisons and evaluations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from whence.config import Config
from whence.experiments.instrument import MOST_VARIANTS, ComparisonConfig
from whence.experiments.options import metavar, positional
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
    """The parts of an autoencoder."""

    d_sae: int = Field(default=2048, ge=1, le=2**20, description="number of features")
    centering: Annotated[Choice[Centering], CENTERINGS] = Field(
        default=CENTERINGS.choose("mean"),
        description="mean to subtract from activations: of all (mean), or of each position (position_mean)",
    )
    encoder: Annotated[Choice[Encoder], ENCODERS] = Field(
        default=ENCODERS.choose("shared"), description="map from activations to pre-activations"
    )
    norm: Annotated[Choice[Norm], NORMS] = Field(
        default=NORMS.choose("none"), description="normalization over the pre-activations of an activation"
    )
    mask: Annotated[Choice[Mask], MASKS] = Field(
        default=MASKS.choose("none"), description="mask over positions and features; none: no mask"
    )
    sparsity: Annotated[Choice[Sparsity], SPARSITY] = Field(
        default=SPARSITY.choose("topk"), description="sparsity mechanism"
    )
    losses: tuple[Annotated[Choice[Loss], LOSSES], ...] = Field(
        default=(), max_length=32, description="loss terms in addition to reconstruction and sparsity; none: no others"
    )
    position_schedule: Annotated[Choice[Schedule], SCHEDULES] = Field(
        default=SCHEDULES.choose("constant"), description="strength of position-dependent parts during training"
    )
    init: Annotated[Choice[Init], INITS] = Field(
        default=INITS.choose("unit"), description="initialization of the decoder directions"
    )
    position_ablated: bool = Field(
        default=False, description="control: mask off, and the same position for all activations"
    )

    @property
    def uses_positions(self) -> bool:
        """Whether any part depends on position."""
        plain = AutoencoderConfig()
        return any(getattr(self, part) != getattr(plain, part) for part in ("centering", "encoder", "mask", "losses"))


class FeaturesTraining(TrainingConfig):
    """How an autoencoder is trained."""

    steps: int = Field(default=400, ge=1, le=10**9, description="optimizer steps")
    batch_size: int = Field(default=1024, ge=1, le=2**20, description="activations per step")
    lr: float = Field(default=8e-3, gt=0, le=1e38, description="peak learning rate")
    position_lr_multiplier: float = Field(
        default=10.0,
        gt=0,
        le=1e6,
        description="learning rate of position-dependent parameters, as a multiple of lr; 1: the same",
    )
    warmup: int = Field(default=30, ge=0, le=10**9, description="steps of linear warmup; 0: none")
    weight_decay: float = Field(default=0.0, ge=0, le=1e6, description="weight decay of all parameters; 0: none")
    clip: float = Field(default=1000.0, gt=0, le=1e38, description="largest gradient norm; large values: no clipping")
    evaluations: int = Field(
        default=5, ge=1, le=10_000, description="evaluations after the one at step 0, evenly spaced"
    )


def parse_data(value: Any) -> Any:
    """Accept the directory of a collection."""
    if not isinstance(value, str) or value.split(":")[0] in DATA.names():
        return value
    return {"name": "stored", "path": value}


DataChoice = Annotated[Choice[ActivationData], DATA, BeforeValidator(parse_data), AfterValidator(with_checksum)]


class FeaturesConfig(ComparisonConfig):
    """Presets to compare, and their common data, size and sparsity."""

    presets: tuple[str, ...] = Field(
        default=(ALL,),
        min_length=1,
        max_length=MOST_VARIANTS,
        description="presets to compare ('whence features presets'), or all",
        json_schema_extra=metavar("NAME"),
    )
    data: DataChoice = Field(
        default=DATA.choose("synthetic"), description="activations to train on: synthetic, or a collection's directory"
    )
    d_sae: int = Field(default=0, ge=0, le=2**20, description="features per autoencoder; 0: the default of the data")
    l0: int = Field(
        default=0,
        ge=0,
        le=2**20,
        description="active features per activation, matched for all presets; 0: the default of the data",
    )
    sparsity: str = Field(
        default=OWN,
        description="one mechanism for all presets, such as topk or l1; own: each preset's",
        json_schema_extra=metavar("NAME"),
    )
    controls: bool = Field(
        default=False,
        description="add controls: each preset with position ablated, and a plain autoencoder of the same size",
    )
    training: FeaturesTraining = FeaturesTraining()

    @property
    def variants(self) -> int:
        """The largest possible number: each preset has up to two controls."""
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
    """Model, layer and text to collect activations of."""

    model: str = Field(
        default="minilm",
        description="minilm, smollm2, a directory with a transformers model, or run:ID for a run of the arena",
        json_schema_extra=metavar("MODEL"),
    )
    tokens: int = Field(default=500_000, ge=1, le=10**9, description="activations to collect, without special tokens")
    text: str = Field(
        default=PROBES,
        description="text file with documents; probes: the packaged labelled sets",
        json_schema_extra=metavar("FILE"),
    )
    batch_size: int = Field(default=16, ge=1, le=SHARD, description="sequences per forward pass")
    name: str = Field(
        default="", description="name of the collection; none: MODEL-LAYER", json_schema_extra=metavar("NAME")
    )


class EvaluateConfig(Config):
    """The autoencoder to evaluate, and the activations."""

    target: str = Field(
        default="",
        description="id of a run (first digits), or a directory in the format of SAELens",
        json_schema_extra=positional("RUN|DIR"),
    )
    activations: str = Field(
        default="",
        description="name of a collection ('whence features collect'); none: that of the training",
        json_schema_extra=metavar("NAME"),
    )


class ProbeConfig(Config):
    """Autoencoders and tasks of sparse probing."""

    runs: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="ids of runs (first digits), trained on the same collection",
        json_schema_extra=positional("RUN"),
    )
    sets: tuple[str, ...] = Field(
        default=(),
        max_length=256,
        description="labelled text sets of the sae-probes package; none: five of them",
        json_schema_extra=metavar("NAME"),
    )
    order: tuple[OrderTask, ...] = Field(
        default=("first", "halves", "thirds"),
        max_length=3,
        description="word-order tasks. first: which of two words is earlier; halves: whether the halves of a text are "
        "exchanged; thirds: whether a token is in the first or the last third of the context",
    )
    train: int = Field(default=4000, ge=20, le=10**6, description="training texts per set")
    test: int = Field(default=1000, ge=20, le=10**6, description="test texts per set")
    by_position: bool = Field(default=False, description="also probe ranges of positions separately")
    mask_off: bool = Field(default=False, description="encode with the mask off")


class SpliceConfig(Config):
    """Autoencoders to splice into their language model."""

    runs: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="ids of runs (first digits), trained on the same collection",
        json_schema_extra=positional("RUN"),
    )
    what: Literal["both", "recovered", "unlearning"] = Field(
        default="both", description="recovered cross-entropy, unlearning, or both"
    )
    sequences: int = Field(default=32, ge=1, le=10**6, description="held-out sequences for the cross-entropy")
    mask_off: bool = Field(default=False, description="encode with the mask off for the cross-entropy")


class ShowConfig(Config):
    """The autoencoder whose features are shown."""

    run: str = Field(default="", description="id of a finished run (first digits)", json_schema_extra=metavar("RUN"))
