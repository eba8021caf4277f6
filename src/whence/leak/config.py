"""Configurations of comparisons of mitigations and of audits. That of a single run is `whence.leak.run.LeakRun`."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from whence.config import Config
from whence.errors import UserError
from whence.experiments.instrument import MOST_VARIANTS, ComparisonConfig
from whence.experiments.options import metavar
from whence.leak.data import DATA
from whence.leak.metrics import MASK_RATIOS, check_ratios
from whence.leak.mitigations import MITIGATIONS
from whence.leak.model import MaskedSpec
from whence.leak.run import AnyData, LeakRun, MaskedTraining, Masking, Mitigations

ROOT_CAUSE_KEYS = (
    "mask_ratio",
    "prevent_position_only_learning",
    "position_regularization_weight",
    "shuffle_sequences_prob",
)
"""Configuration keys of "Position Leakage Root Cause Analysis", which config files may use"""
FIRST = ("none", "zero_masked_positions", "all", "content_gated")
COMPARED = (0.5, 0.9)
"""Mask ratios at which errors are compared."""


class Treatment(Config):
    """One or several mitigations together."""

    mitigations: Mitigations = Field(default=(), max_length=32)

    def __str__(self) -> str:
        return LeakRun.model_construct(mitigations=self.mitigations).mitigation


def parse_treatment(value: Any) -> Any:
    return {"mitigations": value} if isinstance(value, str | list | tuple) else value


Listed = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)


class LeakConfig(ComparisonConfig):
    """Which mitigations to compare, on which data, over how many seeds."""

    data: AnyData = Field(
        default=DATA.choose("basic_motions"),
        description=f"recordings to mask and reconstruct: {', '.join(DATA.names())}, or a .npy file",
    )
    mitigations: Annotated[tuple[Annotated[Treatment, BeforeValidator(parse_treatment)], ...], Listed] = Field(
        default=tuple(Treatment.read({"mitigations": name}) for name in FIRST),
        min_length=1,
        max_length=MOST_VARIANTS,
        description=f"variants to compare; the first is the reference. Names: {', '.join(MITIGATIONS.names())}; join "
        'several with +. none: no mitigation. all: the four of "Position Leakage Root Cause Analysis"',
    )
    model: MaskedSpec = MaskedSpec()
    masking: Masking = Masking()
    training: MaskedTraining = MaskedTraining()

    @pydantic.model_validator(mode="before")
    @classmethod
    def _root_cause_keys(cls, document: Any) -> Any:
        """Translate the keys of "Position Leakage Root Cause Analysis": a mask ratio and its mitigations."""
        if not isinstance(document, dict):
            return document
        rest = {key: value for key, value in document.items() if key not in ROOT_CAUSE_KEYS}
        given = {key: document[key] for key in ROOT_CAUSE_KEYS if key in document}
        if "mask_ratio" in given:
            masking = rest.get("masking", {})
            if not isinstance(masking, dict) or "mask_ratio" in masking:
                raise ValueError("mask_ratio is set both at the top level and in masking. Set one of them.")
            rest["masking"] = {**masking, "mask_ratio": given.pop("mask_ratio")}
        if not given:
            return rest
        if "mitigations" in rest:
            raise ValueError(f"mitigations cannot be combined with {', '.join(given)}. Set one or the other.")
        prevent = given.get("prevent_position_only_learning", False)
        if not isinstance(prevent, bool):
            raise ValueError(f"prevent_position_only_learning: expected true or false, got {prevent!r}.")
        names = ["zero_masked_positions", "variance_penalty"] if prevent else []
        if prevent and (weight := given.get("position_regularization_weight", 1.0)):
            names.append(f"position_penalty:weight={weight}")
        if given.get("shuffle_sequences_prob"):
            names.append(f"permute_tokens:prob={given['shuffle_sequences_prob']}")
        return rest | {"mitigations": ["none", *filter(None, ["+".join(names)])]}

    @property
    def variants(self) -> int:
        return len(self.mitigations)

    def runs(self) -> dict[str, list[LeakRun]]:
        """By mitigation, one run per seed."""
        names = [str(treatment) for treatment in self.mitigations]
        if len(set(names)) != len(names):
            raise UserError(f"mitigations: expected each once, got {', '.join(names)}. Remove the repeated one.")
        shared = self.model_dump(include={"data", "model", "masking", "training"})
        return {
            str(treatment): [
                LeakRun.read({**shared, **treatment.model_dump(), "seed": seed}) for seed in self.seed_range
            ]
            for treatment in self.mitigations
        }


class AuditConfig(Config):
    """The model to audit, its inputs, and the mask ratios."""

    model: str | None = Field(
        default=None,
        description="minilm, smollm2, a directory with a transformers model, or FILE.py:FUNCTION",
        json_schema_extra=metavar("MODEL"),
    )
    run: str | None = Field(
        default=None,
        description="a stored run in place of a model: first digits of its id",
        json_schema_extra=metavar("RUN"),
    )
    text: str | None = Field(
        default=None,
        description="text file to audit a language model on; none: the packaged Python manual",
        json_schema_extra=metavar("FILE"),
    )
    token_ids: str | None = Field(
        default=None,
        description=".npy file of token ids (rows, tokens) in place of text, for models without a tokenizer",
        json_schema_extra=metavar("FILE"),
    )
    mask_token_id: int | None = Field(
        default=None,
        ge=0,
        le=2**31,
        description="id of the mask token, with --token-ids; none: masked tokens get the mean of all token embeddings",
    )
    rows: int | None = Field(default=None, ge=5, le=1000, description="number of text examples; none: 24")
    length: int | None = Field(
        default=None, ge=12, le=4096, description="tokens per text example; none: 64, or the model's maximum if smaller"
    )
    ratios: Annotated[tuple[float, ...], AfterValidator(check_ratios)] = Field(
        default=MASK_RATIOS,
        max_length=64,
        description="mask ratios: shares of tokens, above 0 and up to 1",
    )
    seed: int = Field(
        default=0, ge=0, le=2**63 - 1, description="random seed of the masks, and of any noise the model draws"
    )
    force: bool = Field(default=False, description="measure even if the store holds this audit")

    def check(self) -> None:
        """Raise `UserError` for fields that are valid alone and impossible together."""
        if (self.model is None) == (self.run is None):
            given = "neither" if self.model is None else "both"
            raise UserError(f"model: expected either --model or --run, got {given}. Pass one of them.")
        if self.token_ids is None and self.mask_token_id is not None:
            raise UserError("mask_token_id: requires --token-ids; text is masked by its tokenizer.")
        unused = [name for name in ("text", "rows", "length") if getattr(self, name) is not None]
        if self.token_ids is not None and unused:
            raise UserError(f"{unused[0]}: applies to text, but --token-ids is given. Pass one of them.")
