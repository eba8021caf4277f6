"""Search for shortcuts: the accuracy that predictors without a task's skill reach on held-out answers."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from whence import stats
from whence.config import Config
from whence.shortcuts.answers import Answers, draw
from whence.shortcuts.classes import CLASSES, FeatureClass
from whence.shortcuts.columns import Columns, position
from whence.shortcuts.fit import HIDDEN_UNITS, look_up, pick_place, train
from whence.shortcuts.keys import Keys
from whence.tasks import Task, line

SEARCH_VERSION = 1
"""Raise it with every change that alters what the search finds: saved baselines of other versions are not used."""
SAMPLES = 20_000
TRAINING = 2
"""Answers to train on, as a multiple of the held-out ones."""
MOST_WEIGHTS = 2**15
"""Linear models with more weights (features × outputs) are not tried: they cost more than they find."""
MOST_COLUMNS_MLP = 256
"""Perceptrons on wider features are not tried."""
SHORT = 16
"""Below this number of tokens, summaries are not tried together."""
MOST_NUMBERS = 2**26
"""Features of the training answers at a time; where there are more, fewer answers are used."""
SOLVED = 0.95
SEQUENCES_BY_POSITION = 4096
CLASSES_BY_POSITION = ("majority", "declared", "last tokens", "window sums", "variety")
"""Not the first tokens: seen from one position, each of them stands at a fixed distance."""


class ShortcutScore(Config):
    """What one predictor reaches on held-out answers."""

    name: str
    feature_class: str
    accuracy: float
    interval: tuple[float, float]
    """95 % Wilson interval. Answers of one sequence count as the independent answers that they are worth."""
    expresses_skill: bool
    """Whether using these features is the skill that the task asks for; then the score is no shortcut."""

    def rounded(self) -> ShortcutScore:
        """With as many digits as are saved."""
        low, high = self.interval
        update = {"accuracy": round(self.accuracy, 5), "interval": (round(low, 5), round(high, 5))}
        return self.model_copy(update=update)


def search(
    task: Task,
    length: int,
    first: int = 0,
    samples: int = SAMPLES,
    *,
    classes: Collection[str] = CLASSES,
) -> list[ShortcutScore]:
    """Fit every predictor on every feature class and score it on `samples` held-out answers; best first.

    Arguments:
        task: any task, registered or not.
        length: length of the sequences.
        first: in tasks that are asked at every position, the first position that counts.
        samples: number of held-out answers. Twice as many are drawn for training.
        classes: names of the feature classes to try. All summaries together are tried only if all classes are.
    """
    known = draw(task, length, first=first, count=TRAINING * samples, seed=1)
    new = draw(task, length, first=first, count=samples, seed=2)
    chance = 1 / (new.length if task.per == "place" else task.outputs)
    scores = []
    if task.goal == "classification":
        certain = (chance, chance)
        guess = ShortcutScore(
            name="uniform guess", feature_class="majority", accuracy=chance, interval=certain, expresses_skill=False
        )
        scores.append(guess)
    expressed = expressed_by(task)
    for name in classes:
        predict = _places if task.per == "place" else _answers
        for shortcut, right in predict(CLASSES[name], known, new):
            scores.append(_score(shortcut, name, right, new, expresses_skill=name in expressed))
    if task.per != "place" and len(classes) == len(CLASSES):
        scores += [_score(name, "all summaries", right, new, False) for name, right in _summaries(known, new)]
    return sorted(scores, key=lambda score: -score.accuracy)


def best(scores: list[ShortcutScore]) -> ShortcutScore:
    """The highest of all classes that do not express the skill."""
    return max((score for score in scores if not score.expresses_skill), key=lambda score: score.accuracy)


def expressed_by(task: Task) -> frozenset[str]:
    """The task's own list, and the window of recent tokens that reaches further than the task allows."""
    return task.expressed_by | {"long window"}


def _score(name: str, feature_class: str, right: Tensor, new: Answers, expresses_skill: bool) -> ShortcutScore:
    """right: bool, (answers,) or (answers, outputs)."""
    right = right.reshape(len(new), -1)
    per_sequence = torch.zeros(int(new.sequence.max()) + 1, dtype=torch.long)
    per_sequence.index_add_(0, new.sequence, right.sum(1))
    correct, total = int(right.sum()), right.numel()
    squares = int((per_sequence**2).sum())
    worth = stats.effective(correct=correct, total=total, sequences=len(per_sequence), squares=squares)
    accuracy = correct / total
    return ShortcutScore(
        name=name,
        feature_class=feature_class,
        accuracy=accuracy,
        interval=stats.wilson(accuracy * worth, worth),
        expresses_skill=expresses_skill,
    )


def _answers(features: FeatureClass, known: Answers, new: Answers) -> Iterator[tuple[str, Tensor]]:
    """Name of each predictor, and where it is right."""
    for keys in features.keys:
        yield from _looked_up(keys, known, new)
    perceptron = features.summary or features.perceptron
    for label, columns in features.columns.items():
        yield from _fitted(label, columns, known, new, perceptron=perceptron, summary=features.summary)


def _summaries(known: Answers, new: Answers) -> Iterator[tuple[str, Tensor]]:
    """All summaries that do not express the skill, together. In short sequences they would spell out every token."""
    if known.length < SHORT:
        return
    parts = [
        columns
        for name, features in CLASSES.items()
        if features.summary and name not in expressed_by(known.task)
        for columns in features.columns.values()
    ]
    if len(parts) > 1:
        yield from _fitted("all summaries", _together(*parts), known, new, perceptron=True, summary=True)


def _together(*parts: Columns) -> Columns:
    return lambda answers: torch.cat([part(answers).float() for part in parts], 1)


def _fitted(
    label: str, columns: Columns, known: Answers, new: Answers, *, perceptron: bool, summary: bool
) -> Iterator[tuple[str, Tensor]]:
    """Linear model and perceptron. Summaries are given the position too, unless that would express the skill."""
    task = known.task
    width = columns(new[:1]).shape[1]
    if not 0 < width * task.outputs <= MOST_WEIGHTS:
        return
    if summary and task.per == "token" and "position" not in task.expressed_by:
        label, columns = f"{label} and the position", _together(columns, position)
    enough = known[: MOST_NUMBERS // width]
    matrix, unseen = columns(enough), columns(new)
    models = {"linear model": 0}
    if perceptron and matrix.shape[1] <= MOST_COLUMNS_MLP:
        models["small MLP"] = HIDDEN_UNITS
    for model, hidden_units in models.items():
        predict = train(matrix, enough.targets, task.outputs, hidden_units=hidden_units)
        yield f"{model} on {label}", task.correct(predict(unseen), new.targets)
        if task.goal == "regression":  # a mean is seldom right; the likeliest value may be
            values, classes = enough.targets.flatten().unique(return_inverse=True)
            if matrix.shape[1] * len(values) <= MOST_WEIGHTS:
                likeliest = train(matrix, classes, len(values), hidden_units=hidden_units)(unseen).argmax(1)
                right = task.correct(values[likeliest].reshape(new.targets.shape), new.targets)
                yield f"{model} (values as classes) on {label}", right


def _looked_up(keys: Keys, known: Answers, new: Answers) -> Iterator[tuple[str, Tensor]]:
    """Per place and regression, targets have one more axis, and keys may have it, too."""
    targets, asked = known.targets.reshape(len(known), -1).unbind(1), keys(new)
    for label, table in keys(known).items():
        of, new_of = (k.reshape(len(k), -1).expand(-1, len(targets)).unbind(1) for k in (table, asked[label]))
        predictions = [look_up(*of_one) for of_one in zip(of, targets, new_of, strict=True)]
        guesses = torch.stack(predictions, 1).reshape(new.targets.shape)
        regression = new.task.goal == "regression"
        yield label, new.task.correct(guesses, new.targets) if regression else guesses == new.targets


def _places(features: FeatureClass, known: Answers, new: Answers) -> Iterator[tuple[str, Tensor]]:
    for place_keys in features.places:
        table, asked = place_keys(known), place_keys(new)
        for label in table:
            for which in ("first", "latest"):
                picks = pick_place(table[label], known.targets, asked[label], latest=which == "latest")
                yield f"{label} ({which} such position)", picks == new.targets
    if features in (CLASSES["majority"], CLASSES["declared"]):  # other keys belong to answers, not to positions
        for keys in features.keys:
            yield from _looked_up(keys, known, new)


@functools.lru_cache(maxsize=256)
def baseline_by_position(task: Task, length: int) -> Mapping[int, float]:
    """The highest accuracy of a shortcut at each position that is scored.

    Lookup tables on a few cheap feature classes only, fitted at each position separately: a lower bound of what a full
    search at each position would find. Measured once per process.
    """
    batch = task.sample(torch.Generator().manual_seed(0), SEQUENCES_BY_POSITION, length)
    declared, half = task.shortcuts(batch), SEQUENCES_BY_POSITION // 2
    functions = [keys for name in CLASSES_BY_POSITION if name not in expressed_by(task) for keys in CLASSES[name].keys]
    result: dict[int, float] = {}
    for at in batch.scored.all(0).nonzero().flatten().tolist():
        visible = torch.where(line(batch.inputs.shape[1]) <= at, batch.inputs, task.symbols)
        shortcuts = {name: feature[:, at] for name, feature in declared.items()}
        place, row = torch.full((SEQUENCES_BY_POSITION,), at), torch.arange(SEQUENCES_BY_POSITION)
        answers = Answers(task, length, visible, place, batch.targets[:, at], row, shortcuts)
        known, asked = answers.targets[:half], answers.targets[half:]
        tables = [feature for keys in functions for feature in keys(answers).values()]
        right = [(look_up(f[:half], known, f[half:]) == asked).double().mean().item() for f in tables]
        result[at] = max(1 / task.outputs, *right)
    return MappingProxyType(result)
