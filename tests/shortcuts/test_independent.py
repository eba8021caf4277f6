"""scikit-learn's predictors, on the same features, reach no more than the stated baselines."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from whence.shortcuts import baselines
from whence.shortcuts.answers import Answers, draw
from whence.shortcuts.classes import CLASSES
from whence.shortcuts.columns import Columns
from whence.shortcuts.search import MOST_COLUMNS_MLP, MOST_WEIGHTS, expressed_by
from whence.tasks import TASKS, Task


def labels(answers: Answers) -> NDArray[np.int64]:
    """Of places the first one; regression targets as classes."""
    targets = answers.targets.reshape(len(answers), -1)[:, 0]
    return (targets * 1000).round().long().numpy() if answers.task.goal == "regression" else targets.numpy()


def reached(model: BaseEstimator, columns: Columns, train: Answers, test: Answers) -> float:
    pipeline = make_pipeline(StandardScaler(), model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence is not the point
        pipeline.fit(columns(train).float().numpy(), labels(train))
    return float(np.mean(pipeline.predict(columns(test).float().numpy()) == labels(test)))


@pytest.mark.parametrize("name", TASKS.names())
def test_scikit_learn_reaches_no_more(name: str, slow: bool) -> None:
    """Summaries in the short form; every class, with as many answers as the search has, in the long one."""
    choice = TASKS.choose(name)
    task: Task = choice.build()
    stated = baselines.stated_baseline(choice, task.train_length).accuracy
    count = 20_000 if slow else 1500
    train = draw(task, task.train_length, count=2 * count if slow else count, seed=11)
    test = draw(task, task.train_length, count=count, seed=12)
    margin = 3 * np.sqrt(stated * (1 - stated) / len(test)) + 0.01
    classes = [kind for kind in CLASSES if kind not in expressed_by(task) and (CLASSES[kind].summary or slow)]
    for kind, columns in [(name, of) for name in classes for of in CLASSES[name].columns.values()]:
        width = columns(test[:1]).shape[1]
        if not 0 < width <= MOST_COLUMNS_MLP or width * task.outputs > MOST_WEIGHTS:
            continue
        models: list[BaseEstimator] = [LogisticRegression(max_iter=200 if slow else 50)]
        # where the search uses one: an MLP on the whole sequence, such as on one-hots, could express any skill
        if CLASSES[kind].summary or CLASSES[kind].perceptron:
            models.append(MLPClassifier((32,), max_iter=30 if slow else 10, random_state=0))
        for model in models:
            accuracy = reached(model, columns, train, test)
            assert accuracy <= stated + margin, f"{type(model).__name__} on {kind}: {accuracy:.3f} > {stated:.3f}"
