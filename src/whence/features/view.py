"""What is to be seen of a trained autoencoder: where its features speak, and in which text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from whence.errors import UserError
from whence.features.activations.sources import RUN
from whence.features.activations.store import Activations
from whence.features.data.base import Data
from whence.features.data.stored import PART, Stored
from whence.features.evals.measures import BOUND, fidelity, frequent, tally
from whence.features.sae.autoencoder import Autoencoder
from whence.models.pretrained import tokenizer_of

SHOWN = 30
"""Features whose contexts are looked up: half of them the most position-bound, half of all degrees of frequency."""
TOP = 6
"""Contexts per feature."""
AROUND = 10
"""Tokens on each side."""


RARE = -9.0
"""Below every degree: of features that are too rarely active to have one."""
Order = Literal["peak", "fidelity", "frequency", "number", "assigned"]
"""By what features are sorted."""


@dataclass(frozen=True)
class Context:
    """A place in held-out text where a feature is active."""

    value: float
    sequence: int
    position: int
    before: str
    token: str
    after: str


@dataclass(frozen=True)
class View:
    """On states never trained on."""

    positions: Tensor
    """(positions,): those that occur"""
    used: Tensor
    """(positions, size): mean activation, as trained"""
    lifted: Tensor
    """The same, with masks lifted"""
    active: Tensor
    """(size,): share of states at which each feature is active, masks lifted"""
    fidelity: Mapping[int, float]
    """By feature, masks lifted; of the frequent ones only"""
    assigned: Tensor | None
    """(positions, size): how far each feature may speak; None: everywhere alike"""
    fvu: tuple[float, float]
    """As trained, and with masks lifted"""
    contexts: Mapping[int, Sequence[Context]]
    """By feature, of highest activation first, masks lifted"""
    note: str = ""
    """Why there are no contexts"""

    @property
    def peaks(self) -> Tensor:
        """(size,): the position of the highest mean activation, masks lifted"""
        return self.positions[self.lifted.argmax(0)]

    def order(self, by: Order) -> list[int]:
        """All features; those that are never active stand last, unless what they are sorted by does not ask for it."""
        size = self.lifted.shape[1]
        if by == "number":
            return list(range(size))
        if by == "assigned":
            return self._centres().argsort(stable=True).tolist()
        degrees = torch.tensor([self.fidelity.get(feature, RARE) for feature in range(size)])
        keys: dict[Order, Tensor] = {"peak": self.peaks, "fidelity": -degrees, "frequency": -self.active}
        return torch.where(self.active > 0, keys[by].double(), torch.inf).argsort(stable=True).tolist()

    def _centres(self) -> Tensor:
        """(size,): the middle of where each may speak; of those that may not, beyond all others."""
        assert self.assigned is not None
        places = torch.arange(len(self.assigned), dtype=self.assigned.dtype)
        return ((places @ self.assigned) / self.assigned.sum(0)).nan_to_num(nan=torch.inf)

    @property
    def bound(self) -> list[int]:
        """Position-bound features, most bound first."""
        return [feature for feature in most_bound(self.fidelity) if self.fidelity[feature] >= BOUND]

    def to_json(self) -> dict[str, Any]:
        peaks, active = self.peaks.tolist(), self.active.tolist()
        return {
            "features": len(active),
            "frequent": len(self.fidelity),
            "fvu": self.fvu[0],
            "fvu_lifted": self.fvu[1],
            "bound": [
                {"feature": feature, "peak": peaks[feature], "fidelity": self.fidelity[feature]}
                for feature in self.bound
            ],
            "fidelity": {str(feature): value for feature, value in self.fidelity.items()},
            "contexts": {str(f): [vars(context) for context in those] for f, those in self.contexts.items()},
            "note": self.note,
        }


def view(model: Autoencoder, data: Data, tell: Callable[[str], None] = lambda told: None) -> View:
    tell("where features speak")
    table = model.assigned()
    used = tally(model, data.held_out())
    if table is not None:
        tell("where features speak once masks are lifted")
    lifted = used if table is None else tally(model, data.held_out(), lifted=True)
    positions = (lifted.counts > 0).nonzero().flatten()
    degree = dict(zip(frequent(lifted).tolist(), fidelity(lifted).tolist(), strict=True))
    tell("in which text features speak")
    found, note = contexts(model, data, chosen(degree, lifted.active))
    return View(
        positions,
        used.profile,
        lifted.profile,
        lifted.active / lifted.counts.sum(),
        degree,
        None if table is None else table.detach()[positions.clamp(max=len(table) - 1)],
        (used.fvu, lifted.fvu),
        found,
        note,
    )


def most_bound(degree: Mapping[int, float]) -> list[int]:
    return sorted(degree, key=lambda feature: -degree[feature])


def chosen(degree: Mapping[int, float], active: Tensor, count: int = SHOWN) -> list[int]:
    """The most position-bound features, then others, from the most to the least frequent."""
    bound = most_bound(degree)[: count // 2]
    others = sorted(degree.keys() - set(bound), key=lambda feature: -float(active[feature]))
    wanted = min(count - len(bound), len(others))
    return bound + [others[index * len(others) // wanted] for index in range(wanted)]


def contexts(model: Autoencoder, data: Data, features: list[int]) -> tuple[dict[int, list[Context]], str]:
    """Of any features, and why there are none, where that is so."""
    if not isinstance(data, Stored):
        return {}, "These states are made, not collected: there is no text that they belong to."
    try:
        decode = _decoder(data.activations.spec.get("model", ""))
    except UserError as problem:
        return {}, f"The text cannot be shown: {problem}"
    values, places = top_places(model, data, features)
    return {
        feature: [
            _context(data.activations, decode, value, sequence, position)
            for value, (sequence, position) in zip(values[:, row].tolist(), places[:, row].tolist(), strict=True)
            if value > 0
        ]
        for row, feature in enumerate(features)
    }, ""


@torch.no_grad()
def top_places(model: Autoencoder, data: Stored, features: list[int], top: int = TOP) -> tuple[Tensor, Tensor]:
    """(top, features) highest activations in held-out text, and (top, features, 2) sequences and positions."""
    everywhere = data.places("held out")
    values, numbers = torch.zeros(0, len(features)), torch.zeros(0, len(features), dtype=torch.long)
    for part, (states, positions) in enumerate(data.held_out()):
        codes = model.codes(states, positions, lifted=True)[:, features]
        found, rows = codes.topk(min(top, len(codes)), dim=0)
        values, numbers = torch.cat([values, found]), torch.cat([numbers, part * PART + rows])
        values, best = values.topk(min(top, len(values)), dim=0)
        numbers = numbers.gather(0, best)
    return values, everywhere[numbers]


def _decoder(model: str) -> Callable[[list[int]], str]:
    """Ids as text. Those of a run of the arena are symbols of its task, and are shown as such."""
    if model.startswith(RUN):
        return lambda ids: " ".join(map(str, ids))
    return tokenizer_of(model).decode


def _context(
    found: Activations, decode: Callable[[list[int]], str], value: float, sequence: int, position: int
) -> Context:
    ids = found.tokens[sequence].tolist()
    before, after = ids[max(0, position - AROUND) : position], ids[position + 1 : position + 1 + AROUND]
    words = [decode(some) for some in (before, [ids[position]], after)]
    return Context(value, sequence, position, *words)
