"""One part of the model varied, all else equal, over paired seeds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from whence.experiments.instrument import ComparisonConfig
from whence.fields.data import DATA
from whence.fields.hyponets import HYPONETS
from whence.fields.model import FieldSpec
from whence.fields.run import AnyData, FieldsRun, FieldTraining

Axis = Literal["lps", "placement", "encoder", "hyponet"]
MATCH = 64
"""Parts of an MLP ratio, in whose steps encoders are matched in size."""


class AblationTraining(FieldTraining):
    """How a model is trained."""

    steps: int = Field(default=400, ge=1, description="optimiser steps")
    evaluations: int = Field(default=1, ge=1, description="evaluations after the one at step 0, evenly spaced")


class AblatedSpec(FieldSpec):
    """The model, by default as the source has it: before they are mixed, position tokens know nothing of the signal."""

    conditional: bool = Field(default=False, description="position tokens start from the tokens before them, too")
    render_width: int = Field(default=0, ge=0, description="features per input point of the residual render; 0: none")


class FieldsConfig(ComparisonConfig):
    """What to vary, and over how many seeds."""

    axis: Axis = Field(default="lps", description="lps: how many; placement; encoder: mixers and encodings; hyponet")
    data: AnyData = Field(default=DATA.choose("photos"), description="what to learn fields of")
    model: AblatedSpec = AblatedSpec()
    training: AblationTraining = AblationTraining()

    @property
    def title(self) -> str:
        return f"{self.axis}, {self.data}, {self.training.steps} steps"

    def variants(self) -> dict[str, dict[str, Any]]:
        """By name, the fields of the model that differ. The first is what the others are held against."""
        if self.axis == "lps":
            counts = [64, 16, 32, 128, 256]
            return {f"M={count}": {"lps": count} for count in counts}
        if self.axis == "placement":
            named = {name: {"placement": name} for name in ("equidistant", "middle", "n_group", "random")}
            beyond = {name: {"placement": name} for name in ("adaptive", "hierarchical")}
            return {**named, **beyond, "conditional": {"conditional": True}}
        if self.axis == "hyponet":
            return {name: {"hyponet": name} for name in ("cross_attention", *HYPONETS.names())}
        attention = [("sinusoidal", "sinusoidal"), ("learned", "learned"), ("rope", "rope"), ("no encoding", "none")]
        found: dict[str, dict[str, Any]] = {
            "LP + bimamba": {"mixer": "bimamba", "encoding": "none"},
            "LP + bimamba, sinusoidal": {"mixer": "bimamba", "encoding": "sinusoidal"},
        }
        for name, encoding in attention:
            found[f"LP + Transformer, {name}"] = self._matched({"mixer": "attention", "encoding": encoding})
        return found

    def _matched(self, fields: dict[str, Any]) -> dict[str, Any]:
        """With an MLP that brings the model to the size of the one it is held against."""
        wanted = self._size({"mixer": "bimamba", "encoding": "none"})
        low, high = 0, MATCH * 64
        while low < high:  # the smallest that is not smaller
            middle = (low + high) // 2
            if self._size({**fields, "mlp_ratio": middle / MATCH}) < wanted:
                low = middle + 1
            else:
                high = middle
        return {**fields, "mlp_ratio": low / MATCH}

    def _size(self, fields: dict[str, Any]) -> int:
        return self._run(fields, 0).parameters()

    def _run(self, fields: dict[str, Any], seed: int) -> FieldsRun:
        return FieldsRun.read(
            {
                "data": self.data.model_dump(),
                "model": {**self.model.model_dump(), **fields},
                "training": self.training.model_dump(),
                "seed": seed,
            }
        )

    def runs(self) -> dict[str, list[FieldsRun]]:
        """By variant, one run per seed."""
        return {name: [self._run(fields, seed) for seed in self.seed_range] for name, fields in self.variants().items()}
