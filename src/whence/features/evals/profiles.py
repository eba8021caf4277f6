"""Profiles of the features of an autoencoder: mean activation by position, and activating text."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, ConfigDict, PlainSerializer, TypeAdapter
from torch import Tensor

from whence.config import Config
from whence.errors import UserError
from whence.features.activations.sources import RUN
from whence.features.activations.store import Collection
from whence.features.data import PART, ActivationData, StoredActivations
from whence.features.evals.measures import POSITION_SPECIFIC, feature_statistics, frequent, position_selectivity
from whence.features.sae.autoencoder import Autoencoder
from whence.models.pretrained import tokenizer_of

SHOWN = 30
"""Features with contexts: half of them the most position-specific, half sampled over all frequencies."""
TOP = 6
"""Contexts per feature."""
AROUND = 10
"""Tokens on each side."""
RARE = -9.0
"""Sort key below all selectivities, for features that are active too rarely."""
Order = Literal["peak", "position_selectivity", "frequency", "number", "mask_values"]
"""By what features are sorted."""


class ActivatingContext(Config):
    """A place in held-out text where a feature is active."""

    value: float
    sequence: int
    position: int
    before: str
    token: str
    after: str


class TableDocument(Config):
    """(positions, d_sae) numbers in a document."""

    shape: tuple[int, int]
    float32: str
    """Base64 of the bytes, row by row"""


NUMBERS = TypeAdapter(tuple[float, ...])


def _read_table(value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value.float()  # as it is stored
    document = TableDocument.model_validate(value)
    data = bytearray(base64.b64decode(document.float32))
    if len(data) != 4 * math.prod(document.shape):
        raise ValueError(f"{len(data)} bytes are not float32 numbers of shape {document.shape}")
    return torch.frombuffer(data, dtype=torch.float32).view(document.shape)


def _write_table(table: Tensor) -> dict[str, object]:
    data = table.contiguous().numpy().tobytes()
    return {"shape": tuple(table.shape), "float32": base64.b64encode(data).decode()}


def _numbers(value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(NUMBERS.validate_python(value), dtype=torch.float64)


ProfileTable = Annotated[Tensor, BeforeValidator(_read_table), PlainSerializer(_write_table, return_type=dict)]
Numbers = Annotated[Tensor, BeforeValidator(_numbers), PlainSerializer(Tensor.tolist)]


class FeatureProfiles(Config):
    """Mean activations by position on held-out activations, and activating text.

    `whence.features.profiles` returns one. A notebook shows the most position-specific features as a heat map.

    Example:
        >>> result = whence.compare("features", presets=["plain_topk"], seeds=1, training={"steps": 5})
        >>> profiles = whence.features.profiles(result.run_ids[0])
        >>> len(profiles.order("peak")) == len(profiles.peaks)
        True
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    positions: tuple[int, ...]
    """Positions that occur"""
    used: ProfileTable | None
    """(positions, d_sae): mean activation, as trained; None: the same as with the mask off"""
    mask_off: ProfileTable
    """The same, with the mask off"""
    active: Numbers
    """(d_sae,): share of activations at which each feature is active, mask off"""
    position_selectivity: dict[int, float]
    """By feature, mask off; of the frequent ones only"""
    mask_values: ProfileTable | None
    """(positions, d_sae); None: there is no mask"""
    fvu: float
    fvu_mask_off: float
    contexts: dict[int, tuple[ActivatingContext, ...]]
    """By feature, of highest activation first, mask off"""
    note: str = ""
    """Why there are no contexts"""

    @property
    def peaks(self) -> Tensor:
        """(d_sae,): the position of the highest mean activation, mask off"""
        return torch.tensor(self.positions)[self.mask_off.argmax(0)]

    def order(self, by: Order) -> list[int]:
        """All features; those that are never active stand last, unless what they are sorted by does not ask for it."""
        d_sae = self.mask_off.shape[1]
        if by == "number":
            return list(range(d_sae))
        if by == "mask_values":
            return self._centres().argsort(stable=True).tolist()
        degrees = torch.tensor([self.position_selectivity.get(feature, RARE) for feature in range(d_sae)])
        keys: dict[Order, Tensor] = {"peak": self.peaks, "position_selectivity": -degrees, "frequency": -self.active}
        return torch.where(self.active > 0, keys[by].double(), torch.inf).argsort(stable=True).tolist()

    def _centres(self) -> Tensor:
        """(d_sae,): the centre of each mask; of those that are 0 everywhere, beyond all others."""
        assert self.mask_values is not None
        places = torch.arange(len(self.mask_values), dtype=self.mask_values.dtype)
        return ((places @ self.mask_values) / self.mask_values.sum(0)).nan_to_num(nan=torch.inf)

    @property
    def position_specific(self) -> list[int]:
        """Position-specific features, the most selective first."""
        return [
            feature
            for feature in most_position_specific(self.position_selectivity)
            if self.position_selectivity[feature] >= POSITION_SPECIFIC
        ]

    def _repr_html_(self) -> str:
        from whence.features.notebook import profiles_fragment

        return profiles_fragment(self)

    def summary(self) -> dict[str, Any]:
        """As JSON, without the profiles themselves."""
        peaks = self.peaks.tolist()
        return {
            "features": len(self.active),
            "frequent": len(self.position_selectivity),
            "fvu": self.fvu,
            "fvu_mask_off": self.fvu_mask_off,
            "position_specific": [
                {"feature": f, "peak": peaks[f], "position_selectivity": self.position_selectivity[f]}
                for f in self.position_specific
            ],
            "position_selectivity": {str(feature): value for feature, value in self.position_selectivity.items()},
            "contexts": {str(f): [one.model_dump() for one in those] for f, those in self.contexts.items()},
            "note": self.note,
        }


def feature_profiles(
    model: Autoencoder, data: ActivationData, on_progress: Callable[[str], None] = lambda message: None
) -> FeatureProfiles:
    on_progress("Computing mean activations by position")
    table = model.mask_values()
    used = feature_statistics(model, data.held_out())
    if table is not None:
        on_progress("Computing mean activations by position, mask off")
    mask_off = used if table is None else feature_statistics(model, data.held_out(), mask_off=True)
    positions = (mask_off.counts > 0).nonzero().flatten()
    degree = dict(zip(frequent(mask_off).tolist(), position_selectivity(mask_off).tolist(), strict=True))
    on_progress("Finding activating text")
    examples, note = contexts(model, data, chosen(degree, mask_off.active))
    return FeatureProfiles(
        positions=tuple(positions.tolist()),
        used=None if table is None else used.profile,
        mask_off=mask_off.profile,
        active=mask_off.active / mask_off.counts.sum(),
        position_selectivity=degree,
        mask_values=None if table is None else table.detach()[positions.clamp(max=len(table) - 1)],
        fvu=used.fvu,
        fvu_mask_off=mask_off.fvu,
        contexts=examples,
        note=note,
    )


def most_position_specific(degree: Mapping[int, float]) -> list[int]:
    return sorted(degree, key=lambda feature: -degree[feature])


def chosen(degree: Mapping[int, float], active: Tensor, count: int = SHOWN) -> list[int]:
    """The most position-specific features, then others, from the most to the least frequent."""
    position_specific = most_position_specific(degree)[: count // 2]
    others = sorted(degree.keys() - set(position_specific), key=lambda feature: -float(active[feature]))
    wanted = min(count - len(position_specific), len(others))
    return position_specific + [others[index * len(others) // wanted] for index in range(wanted)]


def contexts(
    model: Autoencoder, data: ActivationData, features: list[int]
) -> tuple[dict[int, tuple[ActivatingContext, ...]], str]:
    """Contexts by feature, and the reason if there are none."""
    if not isinstance(data, StoredActivations):
        return {}, "There is no text to show, since the activations are synthetic."
    try:
        site = data.collection.config.site
        decode = _decoder(site.model if site else "")
    except UserError as problem:
        return {}, f"Activating text is not available: {problem}"
    values, places = top_places(model, data, features)
    return {
        feature: tuple(
            _context(data.collection, decode, value, sequence, position)
            for value, (sequence, position) in zip(values[:, row].tolist(), places[:, row].tolist(), strict=True)
            if value > 0
        )
        for row, feature in enumerate(features)
    }, ""


@torch.no_grad()
def top_places(
    model: Autoencoder, data: StoredActivations, features: list[int], top: int = TOP
) -> tuple[Tensor, Tensor]:
    """(top, features) highest activations in held-out text, and (top, features, 2) sequences and positions."""
    everywhere = data.places["held out"]
    values, numbers = torch.zeros(0, len(features)), torch.zeros(0, len(features), dtype=torch.long)
    for part, (activations, positions) in enumerate(data.held_out()):
        codes = model.encode(activations, positions, mask_off=True)[:, features]
        highest, rows = codes.topk(min(top, len(codes)), dim=0)
        values, numbers = torch.cat([values, highest]), torch.cat([numbers, part * PART + rows])
        values, best = values.topk(min(top, len(values)), dim=0)
        numbers = numbers.gather(0, best)
    return values, everywhere[numbers]


def _decoder(model: str) -> Callable[[list[int]], str]:
    """Ids as text. Those of a run of the arena are symbols of its task, and are shown as such."""
    if model.startswith(RUN):
        return lambda ids: " ".join(map(str, ids))
    return tokenizer_of(model).decode


def _context(
    collection: Collection, decode: Callable[[list[int]], str], value: float, sequence: int, position: int
) -> ActivatingContext:
    ids = collection.tokens[sequence].tolist()
    before, after = ids[max(0, position - AROUND) : position], ids[position + 1 : position + 1 + AROUND]
    words = [decode(some) for some in (before, [ids[position]], after)]
    return ActivatingContext(
        value=value, sequence=sequence, position=position, before=words[0], token=words[1], after=words[2]
    )
