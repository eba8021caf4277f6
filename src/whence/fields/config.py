"""What the fields instrument can be asked for: the model, its training, comparisons, renderings and analyses."""

from __future__ import annotations

import os.path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from whence.config import Config
from whence.encodings import ENCODINGS, EncodingChoice
from whence.encodings.position_tokens import Placement
from whence.experiments.instrument import ComparisonConfig
from whence.experiments.options import positional
from whence.fields.data import DATA, DataChoice
from whence.fields.hyponets import HYPONETS, HyponetChoice
from whence.mixers import MIXERS, Kind, MixerChoice
from whence.recordings import with_checksum
from whence.training.config import TrainingConfig

Axis = Literal["lps", "placement", "encoder", "hyponet"]
Output = Literal["field", "render"]


def parse_data(value: Any) -> Any:
    """The name of a folder or file may stand for it, options behind a file: `mine.npy:axes=2`."""
    if not isinstance(value, str) or value.split(":")[0] in DATA.names():
        return value
    if os.path.isdir(value):
        return {"name": "folder", "path": value}
    name, ending, options = value.partition(".npy")
    return f"arrays:path={name}.npy" + options.replace(":", ",", 1) if ending else value


AnyData = Annotated[DataChoice, BeforeValidator(parse_data), AfterValidator(with_checksum)]


class FieldModelConfig(Config):
    """The model: tokens, position tokens between them, a mixer, and what reads values off."""

    patch: int = Field(default=4, ge=1, le=2**10, description="pixels per token and axis")
    order: Literal["serpentine", "raster"] = Field(default="serpentine", description="in which tokens are read")
    lps: int = Field(default=64, ge=1, le=16_384, description="how many position tokens (M)")
    placement: Placement = Field(default="equidistant", description="where they stand among the others")
    groups: int = Field(default=2, ge=1, le=2**20, description="of placement n_group")
    conditional: bool = Field(default=True, description="position tokens start from the tokens before them, too")
    mixer: MixerChoice = Field(
        default=MIXERS.choose("bimamba"), description="what lets tokens exchange information: bimamba, attention"
    )
    encoding: EncodingChoice = Field(
        default=ENCODINGS.choose("none"), description="explicit encoding beside the position tokens"
    )
    hyponet: HyponetChoice = Field(
        default=HYPONETS.choose("cross_attention"), description="what turns position tokens into values"
    )
    d_model: int = Field(default=64, ge=1, le=2**16, description="width of the residual stream")
    heads: int = Field(default=4, ge=1, le=2**12, description="attention heads per layer; must divide d_model")
    layers: int = Field(default=2, ge=1, le=1000, description="blocks of mixer and MLP")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="on what blocks add to the stream")
    mlp_ratio: float = Field(
        default=2.0, ge=0, le=256, description="width of the MLP's hidden layer over d_model; 0: no MLP"
    )
    render_width: int = Field(
        default=32, ge=0, le=2**12, description="features per input pixel of the residual render; 0: none"
    )
    render_layers: int = Field(default=3, ge=0, le=64, description="convolutions of the residual render")

    @property
    def kind(self) -> Kind:
        kinds = self.mixer.variant.kinds
        return "bidirectional" if "bidirectional" in kinds else "causal"

    @property
    def encoder(self) -> str:
        """Mixer and encoding, for labels."""
        return str(self.mixer) if self.encoding.name == "none" else f"{self.mixer}+{self.encoding}"


class FieldTrainingConfig(TrainingConfig):
    """How a model is trained."""

    steps: int = Field(default=1500, ge=1, le=10**9, description="optimiser steps")
    batch_size: int = Field(default=16, ge=1, le=2**20, description="signals per step")
    pixels: int = Field(default=512, ge=1, le=2**24, description="pixels per signal that enter the loss of a step")
    lr: float = Field(default=2e-3, gt=0, le=1e38, description="peak learning rate")
    matrix_lr: float = Field(default=0.02, gt=0, le=1e38, description="peak learning rate of matrices under muon")
    optimizer: Literal["muon", "adamw"] = Field(default="muon", description="muon: for matrices; AdamW for the rest")
    warmup: int = Field(default=50, ge=0, le=10**9, description="steps of linear warm-up")
    weight_decay: float = Field(default=0.0, ge=0, le=1e6, description="on the weights of linear layers only")
    evaluations: int = Field(
        default=4, ge=1, le=10_000, description="evaluations after the one at step 0, evenly spaced"
    )
    crops: int = Field(default=64, ge=2, le=4096, description="signals in each evaluation set")


class ComparedModelConfig(FieldModelConfig):
    """The model, by default as published: before they are mixed, position tokens do not depend on the signal."""

    conditional: bool = Field(default=False, description="position tokens start from the tokens before them, too")
    render_width: int = Field(
        default=0, ge=0, le=2**12, description="features per input pixel of the residual render; 0: none"
    )


class ComparedTrainingConfig(FieldTrainingConfig):
    """How a model is trained."""

    steps: int = Field(default=400, ge=1, le=10**9, description="optimiser steps")
    evaluations: int = Field(
        default=1, ge=1, le=10_000, description="evaluations after the one at step 0, evenly spaced"
    )


class FieldsConfig(ComparisonConfig):
    """Which part of the model to vary, all else equal, over how many paired seeds."""

    axis: Axis = Field(default="lps", description="lps: how many; placement; encoder: mixers and encodings; hyponet")
    data: AnyData = Field(default=DATA.choose("photos"), description="what to learn fields of")
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
    """Which run to analyze."""

    run: str = Field(
        default="",
        description="first digits of a run's id (see 'whence runs list')",
        json_schema_extra=positional("RUN"),
    )


class RenderConfig(AnalyzeConfig):
    """Which image to render through which run, and how."""

    input: str = Field(default="", description="an image file")
    size: str = Field(default="1024", description="the longer side, or WIDTHxHEIGHT")
    out: str = Field(default="", description="where to write it: .png, .jpg, .webp, .tif, .bmp")
    output: Output = Field(
        default="render", description="field: through the position tokens alone; render: with the enlarged input"
    )
