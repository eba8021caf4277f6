"""Order-sensitive probing: what features know that a bag of tokens cannot.

In all tasks of `order_tasks` both classes have the very same tokens, in either half. A bag of tokens is therefore right
half of the time, whatever it has learned; it is fitted all the same, and its accuracy is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from whence.features.activations.sequences import SequenceStates
from whence.features.evals.probes import KS, Task, Units, compare, dense
from whence.features.sae.dictionary import Dictionary
from whence.random import generator

VOCABULARY = 256
"""The most frequent tokens, which the bag counts."""


def probe_order(
    dictionaries: Mapping[str, Dictionary],
    found: SequenceStates,
    ks: Sequence[int] = KS,
    *,
    lifted: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Of the states that `order_states` gives: what `probes.compare` says, and the accuracy of a bag of tokens."""
    units, tasks = single_tokens(found, seed) if found.notes["order"] == "thirds" else whole_texts(found)
    compared = compare(dictionaries, found, units, tasks, ks, lifted=lifted, seed=seed)
    return {"order": found.notes["order"], "bag": dense(_bag(found, units), tasks), **compared}


def whole_texts(found: SequenceStates) -> tuple[Units, list[Task]]:
    task, test = found.about["task"], found.about["test"].bool()
    tasks = [
        Task(
            name,
            ((task == index) & ~test).nonzero().flatten(),
            ((task == index) & test).nonzero().flatten(),
            found.about["label"].bool(),
        )
        for index, name in enumerate(found.notes["tasks"])
    ]
    return Units(found.content, found.rows[found.content], len(found.lengths)), tasks


def single_tokens(found: SequenceStates, seed: int) -> tuple[Units, list[Task]]:
    """Single tokens. In either half, a token is taken from the last third as often as from the first."""
    length = int(found.lengths.max())
    third = torch.where(found.positions < length // 3, 0, torch.where(found.positions >= length - length // 3, 1, -1))
    tested = found.about["test"].bool()[found.rows]
    size, order = found.notes["size"], torch.randperm(len(found.content), generator=generator(seed, "thirds"))
    shuffled = found.content[order]
    halves = []
    for half, share in ((~tested, 4 * size // 5), (tested, size // 5)):
        sides = [shuffled[half[shuffled] & (third[shuffled] == side)] for side in (0, 1)]
        halves.append(torch.cat([side[: share // 2] for side in _matched(found.ids, *sides)]))
    tokens = torch.cat(halves)
    units = Units(tokens, torch.arange(len(tokens)), len(tokens))
    train, test = torch.arange(len(tokens)).split([len(half) for half in halves])
    return units, [Task(found.notes["tasks"][0], train, test, third[tokens] == 1)]


def _matched(ids: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """As many of both as possible such that the i-th of the one and the i-th of the other are the same token."""
    waiting: dict[int, list[int]] = {}
    for place, token in zip(other.tolist(), ids[other].tolist(), strict=True):
        waiting.setdefault(token, []).append(place)
    pairs = [
        (place, waiting[token].pop())
        for place, token in zip(one.tolist(), ids[one].tolist(), strict=True)
        if waiting.get(token)
    ]
    here, there = torch.tensor(pairs, dtype=torch.long).view(-1, 2).unbind(1)
    return here, there


def _bag(found: SequenceStates, units: Units) -> Tensor:
    """(units, VOCABULARY): how often the most frequent tokens occur."""
    ids = found.ids[units.tokens].long()
    rank = torch.bincount(ids).argsort(descending=True, stable=True).argsort(stable=True)[ids]
    known = rank < VOCABULARY
    counts = torch.zeros(units.count, VOCABULARY)
    return counts.index_put_((units.unit[known], rank[known]), torch.ones(int(known.sum())), accumulate=True)
