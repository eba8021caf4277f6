"""Sparse probing: how much of a label can be read from a few features of a dictionary.

The protocol is SAEBench's: codes are averaged over the tokens of a text; the k features whose means differ most
between the classes, on the training half alone, go into a logistic regression (C = 1, features as they are). Beside it
stand the raw states under the same rule and as a whole, and a control that nobody trained: random directions, as many
as the dictionary has features, of which as many are active.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError
from whence.features.activations.sequences import SequenceStates
from whence.features.evals.probes import KS, Task, Units, compare
from whence.features.sae.dictionary import Dictionary
from whence.random import generator


def probe(
    dictionaries: Mapping[str, Dictionary],
    found: SequenceStates,
    ks: Sequence[int] = KS,
    *,
    lifted: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Of the states that `labelled_states` gives; what comes back is said at `probes.compare`.

    Where there are more than two classes, each is told from the others, and accuracies are averaged over them.
    """
    units = Units(found.content, found.rows[found.content], len(found.lengths))
    everything = torch.ones(units.count, dtype=torch.bool)
    compared = compare(dictionaries, found, units, _tasks(found, everything, seed), ks, lifted=lifted, seed=seed)
    return {"set": found.notes["set"], "unseen": found.notes["unseen"], **compared}


def probe_by_position(
    dictionaries: Mapping[str, Dictionary],
    found: SequenceStates,
    ks: Sequence[int] = (5,),
    ranges: int = 4,
    *,
    lifted: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """The same from the tokens of one range of positions at a time.

    All ranges are judged on the same texts, those that reach into the last, so that ranges differ in nothing but
    position. They divide what at least half of the texts have; without this, short texts would leave the last empty.
    """
    content, rows, positions = found.content, found.rows, found.positions
    ends = torch.zeros(len(found.lengths), dtype=torch.long)
    ends = ends.scatter_reduce(0, rows[content], positions[content] + 1, "amax")
    first, reach = int(positions[content].min()), int(ends.sort(descending=True).values[(len(ends) - 1) // 2])
    if reach - first < ranges:
        raise UserError(
            f"ranges: half of the texts end before position {reach}. Allowed: fewer ranges.", field="ranges"
        )
    long = ends >= reach
    tasks = _tasks(found, long, seed)
    content = content[long[rows[content]]]
    edges = [first + (reach - first) * index // ranges for index in range(ranges + 1)]
    results = []
    for low, high in itertools.pairwise(edges):
        tokens = content[(positions[content] >= low) & (positions[content] < high)]
        units = Units(tokens, rows[tokens], len(found.lengths))
        compared = compare(dictionaries, found, units, tasks, ks, lifted=lifted, seed=seed)
        results.append({"first": low, "last": high - 1, **compared})
    return {"set": found.notes["set"], "texts": int(long.sum()), "ranges": results}


def _tasks(found: SequenceStates, usable: Tensor, seed: int) -> list[Task]:
    labels, test, classes = found.about["label"], found.about["test"].bool(), found.notes["classes"]
    chosen = range(len(classes)) if len(classes) > 2 else [1]
    halves = [[_balanced(labels, label, half, seed) for half in (usable & ~test, usable & test)] for label in chosen]
    return [
        Task(str(classes[label]), train, test, labels == label)
        for label, (train, test) in zip(chosen, halves, strict=True)
    ]


def _balanced(labels: Tensor, label: int, usable: Tensor, seed: int) -> Tensor:
    """Texts of one class, and as many of the others, which take turns."""
    by_class = []
    for other in labels.unique().tolist():
        rows = ((labels == other) & usable).nonzero().flatten()
        order = torch.randperm(len(rows), generator=generator(seed, "balance", label, other))
        by_class.append(rows[order].tolist())
    own = by_class.pop(label)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_class))
    others = [row for row in turns if row is not None]
    count = min(len(own), len(others))
    return torch.tensor(own[:count] + others[:count], dtype=torch.long)
