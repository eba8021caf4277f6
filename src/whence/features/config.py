"""Presets against each other on the same states, at the same number of active features, over paired seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic
from pydantic import Field

from whence import stats
from whence.errors import from_validation
from whence.experiments.instrument import ComparisonConfig
from whence.experiments.saved import Presets
from whence.features.data.base import Data
from whence.features.run import AnyData, FeaturesRun, FeatureTraining, data_of
from whence.features.sae.autoencoder import AutoencoderSpec
from whence.features.sae.parts import DATA, SPARSITY
from whence.features.sae.sparsity.base import Sparsity
from whence.registry import Choice

PRESETS = Presets("whence.features", FeaturesRun)
ALL, OWN = "all", "own"
BASELINE = "position_mean_topk"
"""What every positional mechanism has to beat."""
PLAIN = {"topk": "plain_topk", "l1": "plain_l1"}
"""By sparsity, what nothing positional is in."""


class FeaturesConfig(ComparisonConfig):
    """What to compare, on what."""

    presets: tuple[str, ...] = Field(
        default=(ALL,), min_length=1, description="names ('whence features presets'), or all"
    )
    data: AnyData = Field(default=DATA.choose("planted"), description="states to learn features of")
    size: int = Field(default=0, ge=0, le=2**20, description="features; 0: as usual for the data")
    l0: int = Field(default=0, ge=0, description="active features that all are brought to; 0: as usual for the data")
    sparsity: str = Field(default=OWN, description="own: each preset's; or one for all of them, as topk or l1")
    controls: bool = Field(
        default=False,
        description="beside each preset, itself without positions; beside larger ones, a plain one of their size",
    )
    training: FeatureTraining = FeatureTraining()

    @property
    def title(self) -> str:
        data: Data = self.data.build()
        name = str(self.data.options().get("path") or self.data).split("/")[-1]
        size, l0 = self.size or data.usual_size, self.l0 or data.usual_l0
        sparsity = "" if self.sparsity == OWN else f", {self.sparsity}"
        return f"{name}, {size} features, L0 {l0:g}{sparsity}, {self.training.steps} steps"

    def runs(self) -> dict[str, list[FeaturesRun]]:
        """By name, one run per seed."""
        data = data_of(self.data)
        names = PRESETS.names() if self.presets == (ALL,) else list(dict.fromkeys(self.presets))
        plan = {name: self._runs(data, PRESETS.read(name)) for name in names}
        return {**plan, **self._controls(data, plan)} if self.controls else plan

    def _runs(self, data: Data, document: dict[str, Any]) -> list[FeaturesRun]:
        model: dict[str, Any] = {"size": self.size or data.usual_size, **document["model"]}
        wanted = min(self.l0 or data.usual_l0, model["size"])
        model["sparsity"] = _at_l0(model["sparsity"] if self.sparsity == OWN else self.sparsity, wanted)
        training = {**self.training.model_dump(), **document.get("training", {})}
        shared = {"data": self.data, "model": model, "training": training}
        return [FeaturesRun.read({**shared, "seed": seed}) for seed in self.seed_range]

    def _controls(self, data: Data, plan: dict[str, list[FeaturesRun]]) -> dict[str, list[FeaturesRun]]:
        """Twins that are told nothing of positions, and plain autoencoders with as many parameters, trained alike."""
        found: dict[str, list[FeaturesRun]] = {}
        for name, runs in plan.items():
            model = runs[0].model
            if model.knows_positions:
                blind = model.model_copy(update={"blind": True})
                found[f"{name}, blind"] = [run.model_copy(update={"model": blind}) for run in runs]
            size = (runs[0].parameters() - data.width) // (2 * data.width + 1)
            if size > 1.05 * model.size:
                plain = AutoencoderSpec.read({"size": size, "sparsity": model.sparsity, "centre": model.centre})
                found[f"{name}, plain of its size"] = [run.model_copy(update={"model": plain}) for run in runs]
        return found


def _at_l0(sparsity: str, l0: int) -> Choice[Sparsity]:
    """With the options that give so many active features."""
    try:
        choice = SPARSITY.choose(sparsity)
        return SPARSITY.choose({"name": choice.name, **choice.options(), **choice.variant.at_l0(l0)})
    except pydantic.ValidationError as error:
        raise from_validation(error, lambda path: [OWN, *SPARSITY.names()]) from None


def controlled_pairs(sparsity: Mapping[str, str]) -> list[tuple[str, str]]:
    """Which presets are compared, by name: each with the position-mean baseline and the plain one of its sparsity."""
    controls = [name for name in (BASELINE, *PLAIN.values()) if name in sparsity]
    pairs = []
    for control in controls:
        rivals = [name for name, kind in sparsity.items() if kind == sparsity[control]]
        pairs += [(a, b) for a, b in stats.against(control, rivals) if (b, a) not in pairs]
    return pairs
