"""Search for shortcuts: the accuracy that predictors without a task's skill reach on held-out answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from whence import stats
from whence.shortcuts.answers import Answers, draw
from whence.shortcuts.classes import CLASSES, FeatureClass
from whence.shortcuts.columns import position
from whence.shortcuts.fit import look_up, pick_place, train
from whence.tasks.base import Task

SEARCH_VERSION = 1
"""Raise it with every change that alters what the search finds: saved baselines of other versions are not used."""
SAMPLES = 20_000
TRAINING = 2
"""Answers to train on, as a multiple of the held-out ones."""
MOST_WEIGHTS = 2**15
"""Linear models with more weights (features × outputs) are not tried: they cost more than they find."""
MOST_COLUMNS_MLP = 256
"""Perceptrons on wider features are not tried."""
MOST_NUMBERS = 2**26
"""Features of the training answers at a time; where there are more, fewer answers are used."""
SOLVED = 0.95


@dataclass(frozen=True)
class ShortcutScore:
    """What one predictor reaches on held-out answers."""

    name: str
    feature_class: str
    accuracy: float
    interval: tuple[float, float]
    """95 % Wilson interval. Answers of one sequence count as the independent answers that they are worth."""
    expresses_skill: bool
    """Whether using these features is the skill that the task asks for; then the score is no shortcut."""


def search(
    task: Task,
    length: int,
    first: int = 0,
    samples: int = SAMPLES,
    *,
    on_progress: Callable[[str], None] = lambda message: None,
) -> list[ShortcutScore]:
    """Fit every predictor on every feature class and score it on `samples` held-out answers; best first.

    Arguments:
        task: any task, registered or not.
        length: length of the sequences.
        first: in tasks that are asked at every position, the first position that counts.
        samples: number of held-out answers. Twice as many are drawn for training.
    """
    known = draw(task, length, first=first, count=TRAINING * samples, seed=1)
    new = draw(task, length, first=first, count=samples, seed=2)
    chance = 1 / (new.length if task.per == "place" else task.outputs)
    scores = []
    if task.goal == "classification":
        scores.append(ShortcutScore("uniform guess", "majority", chance, (chance, chance), expresses_skill=False))
    expressed = expressed_by(task)
    for name, features in CLASSES.items():
        on_progress(name)
        predictions = _places(features, known, new) if task.per == "place" else _answers(name, features, known, new)
        for shortcut, right in predictions:
            scores.append(_score(shortcut, name, right, new, expresses_skill=name in expressed))
    if task.per != "place":
        scores += [_score(name, "all summaries", right, new, False) for name, right in _summaries(known, new)]
    return sorted(scores, key=lambda score: -score.accuracy)


def baseline(task: Task, length: int, first: int = 0, samples: int = SAMPLES) -> ShortcutScore:
    """The best score of all classes that do not express the skill."""
    return best(search(task, length, first, samples))


def best(scores: list[ShortcutScore]) -> ShortcutScore:
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
    return ShortcutScore(name, feature_class, accuracy, stats.wilson(accuracy * worth, worth), expresses_skill)


def _answers(name: str, features: FeatureClass, known: Answers, new: Answers) -> Iterator[tuple[str, Tensor]]:
    """Each predictor's name, and where it is right."""
    for keys in features.keys:
        table, asked = keys(known), keys(new)
        for label in table:
            yield label, _right_by_key(table[label], asked[label], known, new)
    for label, columns in features.columns.items():
        beside = features.summary and _position_helps(known)
        yield from _fitted(label, lambda a, columns=columns: columns(a), known, new, features, beside)


def _summaries(known: Answers, new: Answers) -> Iterator[tuple[str, Tensor]]:
    """All summaries that do not express the skill, together."""
    expressed = expressed_by(known.task)
    parts = [
        columns
        for name, features in CLASSES.items()
        if features.summary and name not in expressed
        for columns in features.columns.values()
    ]
    if len(parts) > 1:
        together = FeatureClass(summary=True)
        yield from _fitted(
            "all summaries", lambda a: _beside(*(c(a) for c in parts)), known, new, together, _position_helps(known)
        )


def _position_helps(answers: Answers) -> bool:
    return answers.task.per == "token" and "position" not in answers.task.expressed_by


def _beside(*columns: Tensor) -> Tensor:
    return torch.cat([c.float() for c in columns], 1)


def _fitted(
    label: str,
    columns: Callable[[Answers], Tensor],
    known: Answers,
    new: Answers,
    features: FeatureClass,
    with_position: bool,
) -> Iterator[tuple[str, Tensor]]:
    width = columns(new[:1]).shape[1]
    outputs = known.task.outputs
    if not 0 < width * outputs <= MOST_WEIGHTS:
        return
    if with_position:
        label, plain = f"{label} and the position", columns
        columns = lambda a: _beside(plain(a), position(a))  # noqa: E731
    enough = known[: MOST_NUMBERS // width]
    matrix, unseen = columns(enough), columns(new)
    perceptron = (features.summary or features.perceptron) and matrix.shape[1] <= MOST_COLUMNS_MLP
    for hidden in (False, True)[: 1 + perceptron]:
        predict = train(matrix, enough.targets, outputs, hidden=hidden)
        model = "small MLP" if hidden else "linear model"
        yield f"{model} on {label}", new.task.correct(predict(unseen), new.targets)


def _right_by_key(keys: Tensor, asked: Tensor, known: Answers, new: Answers) -> Tensor:
    """Per place and regression, targets have one more axis."""
    targets = known.targets.reshape(len(known), -1)
    wide = keys.ndim > 1
    guesses = torch.stack(
        [
            look_up(keys[:, i] if wide else keys, target, asked[:, i] if wide else asked)
            for i, target in enumerate(targets.unbind(1))
        ],
        1,
    ).reshape(new.targets.shape)
    return new.task.correct(guesses, new.targets) if new.task.goal == "regression" else guesses == new.targets


def _places(features: FeatureClass, known: Answers, new: Answers) -> Iterator[tuple[str, Tensor]]:
    for keys in features.places:
        table, asked = keys(known), keys(new)
        for label in table:
            for latest in (False, True):
                picks = pick_place(table[label], known.targets, asked[label], latest=latest)
                yield f"{label} ({'latest' if latest else 'first'} such position)", picks == new.targets
    for keys in features.keys:
        if keys in (CLASSES["majority"].keys[0], CLASSES["declared"].keys[0]):
            table, asked = keys(known), keys(new)
            for label in table:
                yield label, _right_by_key(table[label], asked[label], known, new)
