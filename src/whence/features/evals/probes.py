"""What probes of all kinds share: units made of tokens, features of units, and accuracy from few features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError
from whence.features.activations.sequences import SequenceStates
from whence.features.evals.logistic import fit, says
from whence.features.sae.dictionary import Dictionary
from whence.random import generator

KS = (1, 2, 5, 10, 20, 50)
AT_ONCE = 2048
"""Tokens that are encoded at a time."""
Encode = Callable[[Tensor, Tensor], Tensor]
"""(n, features) of (n, width) states at (n,) positions."""


@dataclass(frozen=True)
class Units:
    """What is classified, as groups of tokens: texts, parts of texts, or single tokens."""

    tokens: Tensor
    """(n,): which of the states"""
    unit: Tensor
    """(n,): what each belongs to"""
    count: int


@dataclass(frozen=True)
class Task:
    """Which units are told from which."""

    name: str
    train: Tensor
    """(n,) units"""
    test: Tensor
    """(m,) units"""
    positive: Tensor
    """bool (units,)"""

    def __post_init__(self) -> None:
        if not len(self.test) or len(self.positive[self.train].unique()) < 2:
            raise UserError(f"task: too few examples are left of {self.name!r}.", field="task")


def compare(
    dictionaries: Mapping[str, Dictionary],
    found: SequenceStates,
    units: Units,
    tasks: Sequence[Task],
    ks: Sequence[int] = KS,
    *,
    lifted: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Accuracies on test units, averaged over tasks.

    train, test                       units of every task
    majority                          what saying the commoner class of the training half gives
    raw           k, tasks, all       of the states themselves; all: from every dimension
    dictionaries  k, tasks, l0        by name; l0: active features per token
                  control.k, .tasks   of as many random directions with as many active
    where k: {k: accuracy}, and tasks: {task: {"k": {k: accuracy}, "features": those chosen, best first}}
    """
    for name, dictionary in dictionaries.items():
        _check(name, dictionary, found)
    raw, _ = pool(lambda states, _: states, found, units)
    result = {
        "train": {task.name: len(task.train) for task in tasks},
        "test": {task.name: len(task.test) for task in tasks},
        "majority": _mean([_majority(task) for task in tasks]),
        "raw": {**sparse(raw, tasks, ks), "all": dense(raw, tasks)},
        "dictionaries": {},
    }
    controls: dict[tuple[int, int], dict[str, Any]] = {}
    for name, dictionary in dictionaries.items():
        codes, active = pool(lambda states, at, d=dictionary: d.codes(states, at, lifted), found, units)
        scores = {**sparse(codes, tasks, ks), "l0": active}
        kind = (dictionary.size, max(1, round(active)))
        if kind not in controls:
            controls[kind] = sparse(pool(_random(*kind, found, units, tasks, seed), found, units)[0], tasks, ks)
        result["dictionaries"][name] = {**scores, "control": controls[kind]}
    return result


def _check(name: str, dictionary: Dictionary, found: SequenceStates) -> None:
    width = found.states.shape[1]
    if dictionary.width != width:
        raise UserError(
            f"dictionary: {name!r} is of {dictionary.width} numbers per state. These states have {width}.",
            field="dictionary",
        )
    if dictionary.context < found.context:
        raise UserError(
            f"dictionary: {name!r} knows {dictionary.context} positions. These texts have {found.context}.",
            field="dictionary",
        )


@torch.no_grad()
def pool(encode: Encode, found: SequenceStates, units: Units) -> tuple[Tensor, float]:
    """(units, features): means over the tokens of each, and how many features a token has that are not 0."""
    total, active = torch.zeros(0), 0
    counts = torch.bincount(units.unit, minlength=units.count).clamp(min=1)
    for tokens, unit in zip(units.tokens.split(AT_ONCE), units.unit.split(AT_ONCE), strict=True):
        features = encode(found.states[tokens].float(), found.positions[tokens])
        if not len(total):
            total = torch.zeros(units.count, features.shape[1])
        total.index_add_(0, unit, features)
        active += int(features.count_nonzero())
    return total.div_(counts[:, None]), active / len(units.tokens)


def _random(size: int, active: int, found: SequenceStates, units: Units, tasks: Sequence[Task], seed: int) -> Encode:
    """The largest projections on random directions, from the mean of what is trained on."""
    used = torch.zeros(units.count, dtype=torch.bool)
    used[torch.cat([task.train for task in tasks])] = True
    middle = found.states[units.tokens[used[units.unit]]].mean(0, dtype=torch.float32)
    directions = torch.randn(size, len(middle), generator=generator(seed, "control", size))
    directions /= directions.norm(dim=1, keepdim=True)

    def encode(states: Tensor, positions: Tensor) -> Tensor:
        projections = ((states - middle) @ directions.T).relu_()
        values, places = projections.topk(min(active, size), dim=1)
        return torch.zeros_like(projections).scatter_(1, places, values)

    return encode


def chosen(features: Tensor, task: Task, most: int) -> Tensor:
    """(most,): features by how much their means differ between the classes, on training units alone."""
    here, positive = features[task.train], task.positive[task.train]
    difference = here[positive].mean(0, dtype=torch.float64) - here[~positive].mean(0, dtype=torch.float64)
    return difference.abs().argsort(descending=True, stable=True)[:most]


def sparse(features: Tensor, tasks: Sequence[Task], ks: Sequence[int] = KS) -> dict[str, Any]:
    """k: {k: accuracy}; tasks: the same by task, with the features. All there are, where k is more."""
    found = {}
    for task in tasks:
        best = chosen(features, task, max(ks))
        accuracies = {k: accuracy(features[:, best[:k]], task) for k in ks}
        found[task.name] = {"k": accuracies, "features": best.tolist()}
    return {"k": {k: _mean([one["k"][k] for one in found.values()]) for k in ks}, "tasks": found}


def dense(features: Tensor, tasks: Sequence[Task]) -> float:
    return _mean([accuracy(features, task) for task in tasks])


def accuracy(features: Tensor, task: Task) -> float:
    weights = fit(features[task.train], task.positive[task.train])
    right = says(weights, features[task.test]) == task.positive[task.test]
    return float(right.double().mean())


def _majority(task: Task) -> float:
    commoner = task.positive[task.train].double().mean() > 0.5
    return float((task.positive[task.test] == commoner).double().mean())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
