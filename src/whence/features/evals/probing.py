"""Sparse probing: how much of a label can be read from a few features of a dictionary.

The protocol is SAEBench's: codes are averaged over the tokens of a text; the k features whose means differ most
between the classes, on the training half alone, go into a logistic regression (C = 1, features as they are). Beside it
stand the raw activations under the same rule and as a whole, and an untrained control: random directions, as many
as the dictionary has features, of which as many are active.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from whence.config import Config
from whence.errors import UserError
from whence.features.activations.sequences import SequenceActivations
from whence.features.sae.dictionary import Dictionary, check_fits
from whence.random import generator

KS = (1, 2, 5, 10, 20, 50)
AT_ONCE = 2048
"""Tokens that are encoded at a time."""
PRECISE = 1e-8
STEPS = 100
SEED = 0
"""Of random directions, and of texts that are left out for balance"""
Encode = Callable[[Tensor, Tensor], Tensor]
"""(n, features) of activations (n, d_in) at positions (n,)."""


class TaskAccuracy(Config):
    """Of one task, from few features."""

    k: dict[int, float]
    """Accuracy by the number of features"""
    features: tuple[int, ...]
    """Those chosen, best first"""


class ProbeAccuracy(Config):
    """Accuracy on test units, by the number of features, averaged over tasks."""

    k: dict[int, float]
    tasks: dict[str, TaskAccuracy]


class RawProbe(ProbeAccuracy):
    """Of the activations themselves."""

    all: float
    """From every dimension"""


class DictionaryProbe(ProbeAccuracy):
    """Of the features of a dictionary."""

    l0: float
    """Active features per token"""
    control: ProbeAccuracy
    """Of as many random directions with as many active"""


class ProbeResult(Config):
    """Several dictionaries on the same tasks."""

    train: dict[str, int]
    """Units of every task"""
    test: dict[str, int]
    majority: float
    """Accuracy of predicting the commoner class of the training half"""
    raw: RawProbe
    dictionaries: dict[str, DictionaryProbe]


class SetProbe(ProbeResult):
    """On a labelled set."""

    set: str
    unseen: int
    """Test texts that no dictionary can have been trained on"""


class RangeProbe(ProbeResult):
    """From the tokens of one range of positions."""

    first: int
    last: int


class ProbeByPosition(Config):
    """On a labelled set, from one range of positions at a time."""

    set: str
    texts: int
    ranges: tuple[RangeProbe, ...]


@dataclass(frozen=True)
class Units:
    """What is classified, as groups of tokens: texts, parts of texts, or single tokens."""

    tokens: Tensor
    """(n,): indices of activations"""
    unit: Tensor
    """(n,): what each belongs to"""
    count: int

    @classmethod
    def of_texts(cls, sequences: SequenceActivations, tokens: Tensor) -> Units:
        return cls(tokens, sequences.rows[tokens], len(sequences.lengths))


@dataclass(frozen=True)
class ProbeTask:
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
            raise UserError(
                f"task: expected examples of both classes in {self.name!r}, got too few. Raise --train and --test."
            )


def compare_dictionaries(
    dictionaries: Mapping[str, Dictionary],
    sequences: SequenceActivations,
    units: Units,
    tasks: Sequence[ProbeTask],
    ks: Sequence[int],
    mask_off: bool,
) -> ProbeResult:
    for name, dictionary in dictionaries.items():
        check_fits(dictionary, sequences.activations.shape[1], sequences.context_size, repr(name))
    raw, _ = pool(lambda activations, _: activations, sequences, units)
    controls: dict[tuple[int, int], ProbeAccuracy] = {}
    scores: dict[str, DictionaryProbe] = {}
    for name, dictionary in dictionaries.items():
        codes, l0 = pool(lambda some, at, d=dictionary: d.encode(some, at, mask_off), sequences, units)
        kind = (dictionary.d_sae, max(1, round(l0)))
        if kind not in controls:
            encode = _random(*kind, sequences, units, tasks)
            controls[kind] = sparse(pool(encode, sequences, units)[0], tasks, ks)
        scores[name] = DictionaryProbe(**dict(sparse(codes, tasks, ks)), l0=l0, control=controls[kind])
    return ProbeResult(
        train={task.name: len(task.train) for task in tasks},
        test={task.name: len(task.test) for task in tasks},
        majority=_mean([_majority(task) for task in tasks]),
        raw=RawProbe(**dict(sparse(raw, tasks, ks)), all=dense(raw, tasks)),
        dictionaries=scores,
    )


@torch.no_grad()
def pool(encode: Encode, sequences: SequenceActivations, units: Units) -> tuple[Tensor, float]:
    """(units, features): means over the tokens of each, and how many features a token has that are not 0."""
    total, active = torch.zeros(0), 0
    counts = torch.bincount(units.unit, minlength=units.count).clamp(min=1)
    for tokens, unit in zip(units.tokens.split(AT_ONCE), units.unit.split(AT_ONCE), strict=True):
        features = encode(sequences.activations[tokens].float(), sequences.positions[tokens])
        if not len(total):
            total = torch.zeros(units.count, features.shape[1])
        total.index_add_(0, unit, features)
        active += int(features.count_nonzero())
    return total.div_(counts[:, None]), active / len(units.tokens)


def _random(
    d_sae: int, active: int, sequences: SequenceActivations, units: Units, tasks: Sequence[ProbeTask]
) -> Encode:
    """The largest projections on random directions, from the mean of what is trained on."""
    used = torch.zeros(units.count, dtype=torch.bool)
    used[torch.cat([task.train for task in tasks])] = True
    middle = sequences.activations[units.tokens[used[units.unit]]].mean(0, dtype=torch.float32)
    directions = torch.randn(d_sae, len(middle), generator=generator(SEED, "control", d_sae))
    directions /= directions.norm(dim=1, keepdim=True)

    def encode(activations: Tensor, positions: Tensor) -> Tensor:
        projections = ((activations - middle) @ directions.T).relu_()
        values, places = projections.topk(min(active, d_sae), dim=1)
        return torch.zeros_like(projections).scatter_(1, places, values)

    return encode


def chosen(features: Tensor, task: ProbeTask, most: int) -> Tensor:
    """(most,): features by how much their means differ between the classes, on training units alone."""
    here, positive = features[task.train], task.positive[task.train]
    difference = here[positive].mean(0, dtype=torch.float64) - here[~positive].mean(0, dtype=torch.float64)
    return difference.abs().argsort(descending=True, stable=True)[:most]


def sparse(features: Tensor, tasks: Sequence[ProbeTask], ks: Sequence[int]) -> ProbeAccuracy:
    """From the best k features, or from all there are, where k is more."""
    accuracies = {}
    for task in tasks:
        best = chosen(features, task, max(ks))
        by_k = {k: accuracy(features[:, best[:k]], task) for k in ks}
        accuracies[task.name] = TaskAccuracy(k=by_k, features=tuple(best.tolist()))
    return ProbeAccuracy(k={k: _mean([one.k[k] for one in accuracies.values()]) for k in ks}, tasks=accuracies)


def dense(features: Tensor, tasks: Sequence[ProbeTask]) -> float:
    return _mean([accuracy(features, task) for task in tasks])


def accuracy(features: Tensor, task: ProbeTask) -> float:
    weights = fit_logistic(features[task.train], task.positive[task.train])
    right = predict(weights, features[task.test]) == task.positive[task.test]
    return float(right.double().mean())


def _majority(task: ProbeTask) -> float:
    commoner = task.positive[task.train].double().mean() > 0.5
    return float((task.positive[task.test] == commoner).double().mean())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def probe(
    dictionaries: Mapping[str, Dictionary],
    sequences: SequenceActivations,
    *,
    mask_off: bool = False,
) -> SetProbe:
    """On what `labelled_activations` returns.

    Where there are more than two classes, each is told from the others, and accuracies are averaged over them.
    """
    units, notes = Units.of_texts(sequences, sequences.content), sequences.notes
    tasks = _tasks(sequences, torch.ones(units.count, dtype=torch.bool))
    compared = compare_dictionaries(dictionaries, sequences, units, tasks, KS, mask_off)
    return SetProbe(set=notes.set, unseen=notes.unseen, **dict(compared))


def probe_by_position(
    dictionaries: Mapping[str, Dictionary],
    sequences: SequenceActivations,
    ks: Sequence[int] = (5,),
    ranges: int = 4,
    *,
    mask_off: bool = False,
) -> ProbeByPosition:
    """The same from the tokens of one range of positions at a time.

    All ranges are judged on the same texts, those that reach into the last, so that ranges differ in nothing but
    position. They divide what at least half of the texts have; without this, short texts would leave the last empty.
    """
    content, rows, positions = sequences.content, sequences.rows, sequences.positions
    ends = torch.zeros(len(sequences.lengths), dtype=torch.long)
    ends = ends.scatter_reduce(0, rows[content], positions[content] + 1, "amax")
    first, reach = int(positions[content].min()), int(ends.sort(descending=True).values[(len(ends) - 1) // 2])
    if reach - first < ranges:
        raise UserError(
            f"ranges: half of the texts end before position {reach}, too early for {ranges} ranges. Pass fewer."
        )
    long = ends >= reach
    tasks = _tasks(sequences, long)
    content = content[long[rows[content]]]
    edges = [first + (reach - first) * index // ranges for index in range(ranges + 1)]
    results = []
    for low, high in itertools.pairwise(edges):
        tokens = content[(positions[content] >= low) & (positions[content] < high)]
        units = Units.of_texts(sequences, tokens)
        compared = compare_dictionaries(dictionaries, sequences, units, tasks, ks, mask_off)
        results.append(RangeProbe(first=low, last=high - 1, **dict(compared)))
    return ProbeByPosition(set=sequences.notes.set, texts=int(long.sum()), ranges=tuple(results))


def _tasks(sequences: SequenceActivations, usable: Tensor) -> list[ProbeTask]:
    labels, test, classes = sequences.about["label"], sequences.about["test"].bool(), sequences.notes.classes
    tasks = []
    for label in range(len(classes)) if len(classes) > 2 else [1]:
        train, tested = (_balanced(labels, label, half) for half in (usable & ~test, usable & test))
        tasks.append(ProbeTask(classes[label], train, tested, labels == label))
    return tasks


def _balanced(labels: Tensor, label: int, usable: Tensor) -> Tensor:
    """Texts of one class, and as many of the others, which take turns."""
    by_class = []
    for other in labels.unique().tolist():
        rows = ((labels == other) & usable).nonzero().flatten()
        order = torch.randperm(len(rows), generator=generator(SEED, "balance", label, other))
        by_class.append(rows[order].tolist())
    own = by_class.pop(label)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_class))
    others = [row for row in turns if row is not None]
    count = min(len(own), len(others))
    return torch.tensor(own[:count] + others[:count], dtype=torch.long)


def fit_logistic(features: Tensor, positive: Tensor, strength: float = 1.0) -> Tensor:
    """(features + 1,) float64: weights, and the intercept behind them, by Newton's method with halved steps.

    The objective is scikit-learn's default: ½‖w‖² + C Σ log-loss, the intercept free. strength: C. The optimum is
    unique, so that the way there leaves no trace in it.
    """
    x = _with_one(features)
    sign = positive.double() * 2 - 1
    penalty = torch.ones(x.shape[1], dtype=torch.float64)
    penalty[-1] = 0

    def objective(weights: Tensor) -> Tensor:
        return 0.5 * (penalty * weights**2).sum() + strength * softplus(-sign * (x @ weights)).sum()

    weights = torch.zeros(x.shape[1], dtype=torch.float64)
    value = objective(weights)
    for _ in range(STEPS):
        wrong = torch.sigmoid(-sign * (x @ weights))
        slope = penalty * weights - strength * (x.T @ (sign * wrong))
        if slope.abs().max() <= PRECISE:
            break
        curvature = strength * (x.T * (wrong * (1 - wrong))) @ x + torch.diag(penalty)
        curvature[-1, -1] += PRECISE  # the intercept's may vanish where classes lie far apart
        step = torch.linalg.solve(curvature, slope)
        size, promised = 1.0, slope @ step
        while (after := objective(weights - size * step)) > value - 1e-4 * size * promised and size > 1e-10:
            size /= 2
        if after >= value:
            break  # as low as float64 can tell
        weights, value = weights - size * step, after
    return weights


def predict(weights: Tensor, features: Tensor) -> Tensor:
    """bool (n,)"""
    return _with_one(features) @ weights > 0


def _with_one(features: Tensor) -> Tensor:
    ones = torch.ones(len(features), 1, dtype=torch.float64)
    return torch.cat([features.double(), ones], 1)
