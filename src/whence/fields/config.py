"""Configurations of the fields instrument: model, training, comparisons, renderings and analyses."""

from __future__ import annotations

import os.path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from whence.config import Config
from whence.encodings import ENCODINGS, EncodingChoice
from whence.encodings.position_tokens import Placement
from whence.experiments.instrument import ComparisonConfig
from whence.experiments.options import metavar, positional
from whence.fields.data import DATA, DataChoice
from whence.fields.hyponets import HYPONETS, HyponetChoice
from whence.mixers import MIXERS, Kind, MixerChoice
from whence.recordings import with_checksum
from whence.training.config import TrainingConfig

Axis = Literal["lps", "placement", "encoder", "hyponet"]
Output = Literal["field", "render"]


def parse_data(value: Any) -> Any:
    """Accept a directory or a .npy file in place of a name, with options after the file: `mine.npy:axes=2`."""
    if not isinstance(value, str) or value.split(":")[0] in DATA.names():
        return value
    if os.path.isdir(value):
        return {"name": "folder", "path": value}
    name, ending, options = value.partition(".npy")
    return f"arrays:path={name}.npy" + options.replace(":", ",", 1) if ending else value


AnyData = Annotated[DataChoice, BeforeValidator(parse_data), AfterValidator(with_checksum)]


class FieldModelConfig(Config):
    """Architecture: patch tokens, learnable position tokens, a mixer, and a hyponet that decodes them."""

    patch: int = Field(default=4, ge=1, le=2**10, description="patch size: input pixels per token along each axis")
    order: Literal["serpentine", "raster"] = Field(
        default="serpentine", description="scan order of patches; serpentine reverses every other row"
    )
    lps: int = Field(default=64, ge=1, le=16_384, description="number of learnable position tokens (M)")
    placement: Placement = Field(default="equidistant", description="placement of position tokens among patch tokens")
    groups: int = Field(default=2, ge=1, le=2**20, description="groups of position tokens, with placement n_group")
    conditional: bool = Field(
        default=True, description="initialize each position token also from the patch tokens that precede it"
    )
    mixer: MixerChoice = Field(
        default=MIXERS.choose("bimamba"), description="sequence mixer: bimamba (bidirectional Mamba) or attention"
    )
    encoding: EncodingChoice = Field(
        default=ENCODINGS.choose("none"), description="explicit positional encoding, in addition to the position tokens"
    )
    hyponet: HyponetChoice = Field(
        default=HYPONETS.choose("cross_attention"), description="decoder from position tokens and coordinates to values"
    )
    d_model: int = Field(default=64, ge=1, le=2**16, description="width of the residual stream")
    heads: int = Field(default=4, ge=1, le=2**12, description="attention heads per layer; must divide d_model")
    layers: int = Field(default=2, ge=1, le=1000, description="number of blocks, each a mixer and an MLP")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout probability on residual branches")
    mlp_ratio: float = Field(
        default=2.0, ge=0, le=256, description="hidden width of the MLP, as a multiple of d_model; 0: no MLP"
    )
    render_width: int = Field(
        default=32, ge=0, le=2**12, description="features per input pixel of the residual render; 0: no render"
    )
    render_layers: int = Field(default=3, ge=0, le=64, description="convolutional layers of the residual render")

    @property
    def kind(self) -> Kind:
        kinds = self.mixer.variant.kinds
        return "bidirectional" if "bidirectional" in kinds else "causal"

    @property
    def encoder(self) -> str:
        """Mixer and encoding, for labels."""
        return str(self.mixer) if self.encoding.name == "none" else f"{self.mixer}+{self.encoding}"


class FieldTrainingConfig(TrainingConfig):
    """Optimizer, schedule and evaluation."""

    steps: int = Field(default=1500, ge=1, le=10**9, description="optimizer steps")
    batch_size: int = Field(default=16, ge=1, le=2**20, description="signals per step")
    pixels: int = Field(default=512, ge=1, le=2**24, description="pixels per signal, sampled for the loss of each step")
    lr: float = Field(default=2e-3, gt=0, le=1e38, description="peak learning rate")
    matrix_lr: float = Field(
        default=0.02, gt=0, le=1e38, description="peak learning rate of matrices, with optimizer muon"
    )
    optimizer: Literal["muon", "adamw"] = Field(
        default="muon", description="muon: Muon for matrices, AdamW for the rest; adamw: AdamW for all weights"
    )
    warmup: int = Field(default=50, ge=0, le=10**9, description="steps of linear learning-rate warm-up")
    weight_decay: float = Field(default=0.0, ge=0, le=1e6, description="weight decay, of linear layers only")
    evaluations: int = Field(
        default=4, ge=1, le=10_000, description="evaluations during training, evenly spaced, after the one at step 0"
    )
    crops: int = Field(default=64, ge=2, le=4096, description="signals in each evaluation set")


class ComparedModelConfig(FieldModelConfig):
    """Architecture. By default position tokens do not depend on the signal before the mixer, as in MAMBA-GINR."""

    conditional: bool = Field(
        default=False, description="initialize each position token also from the patch tokens that precede it"
    )
    render_width: int = Field(
        default=0, ge=0, le=2**12, description="features per input pixel of the residual render; 0: no render"
    )


class ComparedTrainingConfig(FieldTrainingConfig):
    """Optimizer, schedule and evaluation."""

    steps: int = Field(default=400, ge=1, le=10**9, description="optimizer steps")
    evaluations: int = Field(
        default=1, ge=1, le=10_000, description="evaluations during training, evenly spaced, after the one at step 0"
    )


class FieldsConfig(ComparisonConfig):
    """A comparison: the part of the model that varies, all else equal, over paired seeds."""

    axis: Axis = Field(
        default="lps",
        description="part of the model that varies: lps (number of position tokens), placement, encoder (mixer and "
        "encoding) or hyponet",
    )
    data: AnyData = Field(
        default=DATA.choose("photos"), description="signals: a name, a directory of images or FILE.npy"
    )
    model: ComparedModelConfig = ComparedModelConfig()
    training: ComparedTrainingConfig = ComparedTrainingConfig()

    @property
    def variants(self) -> int:
        """At most, of any axis."""
        return 10

    @property
    def title(self) -> str:
        return f"{self.axis}, {self.data}, {self.training.steps} steps"


class AnalyzeConfig(Config):
    """An analysis."""

    run: str = Field(
        default="",
        description="id of a trained run, or its first digits (see 'whence runs list')",
        json_schema_extra=positional("RUN"),
    )


class RenderConfig(AnalyzeConfig):
    """A rendering of an image by a trained run."""

    input: str = Field(default="", description="image file to render", json_schema_extra=metavar("FILE"))
    size: str = Field(
        default="1024",
        description="output size in pixels: length of the longer side, or WIDTHxHEIGHT",
        json_schema_extra=metavar("PIXELS"),
    )
    out: str = Field(
        default="", description="output file: .png, .jpg, .webp, .tif or .bmp", json_schema_extra=metavar("FILE")
    )
    output: Output = Field(
        default="render", description="field: decode the position tokens alone; render: correct the bicubic enlargement"
    )
