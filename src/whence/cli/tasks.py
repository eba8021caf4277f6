"""`whence tasks`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from whence.cli.encodings import options_of, shown
from whence.cli.options import Output, parse_options
from whence.cli.output import print_json, print_table, stderr
from whence.errors import UserError
from whence.formatting import percent

if TYPE_CHECKING:
    from whence.registry import Choice
    from whence.tasks.base import Task

DESCRIPTION = """List the tasks, or describe some: the skill they ask for, and what predictors without it reach.

  whence tasks                       all tasks, one line each
  whence tasks k_back_recall:k=5     one task: example, options, lengths, shortcut baselines and the shortcuts found

The shortcut baseline is the best accuracy of a predictor without the skill, searched on 20,000 held-out answers. It is
packaged for default options; for others it is searched once (about 10 s per length) and remembered.

Write a task as NAME:OPTION=VALUE:  k_back_recall:k=5"""


def main(arguments: list[str]) -> int:
    options, words = parse_options(Output, arguments, prog="whence tasks NAME…", description=DESCRIPTION, words=True)
    from pydantic import ValidationError

    from whence.errors import from_validation
    from whence.tasks import TASKS

    try:
        chosen = [TASKS.choose(word) for word in words] or [TASKS.choose(name) for name in TASKS.names()]
    except ValidationError as error:
        raise from_validation(error, lambda path: TASKS.names(), "task") from None
    try:
        with stderr.status("Reading shortcut baselines"):
            tasks = [{"name": str(choice), **_facts(choice)} for choice in chosen]
    except ValueError as error:
        raise UserError(f"task: {error}", field="task") from None
    if options.json_:
        print_json({"tasks": tasks})
    elif words:
        for task in tasks:
            _print_one(task)
    else:
        print_table(
            "Tasks",
            ["name", "what is asked", "answer", "trained to", "options", "shortcut baseline (%)"],
            [
                [t["name"], t["summary"], t["answers"], str(t["train_length"]), shown(t["options"]), _highest(t)]
                for t in tasks
            ],
        )
    return 0


def _facts(choice: Choice[Task]) -> dict[str, Any]:
    import torch

    from whence.shortcuts.baselines import scores
    from whence.shortcuts.search import SOLVED, best
    from whence.tasks import TASKS

    task: Task = choice.build()
    length = max(task.shortest, min(task.train_length, task.longest or task.train_length))
    beyond = [n for n in task.ood_lengths(length) if task.longest is None or n <= task.longest]
    batch = task.sample(torch.Generator().manual_seed(0), 1, max(task.shortest, min(8, length)))
    inputs, asked = batch.inputs[0].tolist(), choice.options()
    found = {n: scores(choice, n, length if n > length else 0) for n in (length, *beyond)}
    return {
        "summary": type(task).summary(),
        "about": inspect.cleandoc(type(task).__doc__ or ""),
        "skill": task.skill,
        "ranked": task.ranked and best(found[length]).accuracy < SOLVED,
        "answers": f"per {task.per}" + (", regression" if task.goal == "regression" else ""),
        "options": {key: {**option, "default": asked[key]} for key, option in options_of(TASKS, choice.name).items()},
        "train_length": length,
        "test_lengths": beyond,
        "example": {"inputs": inputs, "answers": task.solve(inputs)},
        "baselines": {str(n): best(of).model_dump() for n, of in found.items()},
        "shortcuts": [score.model_dump() for score in found[length]],
    }


def _highest(task: dict[str, Any]) -> str:
    found = task["baselines"][str(task["train_length"])]
    return f"{percent(found['accuracy'])} ({found['name']})" + ("" if task["ranked"] else "; ranks nobody")


def _print_one(task: dict[str, Any]) -> None:
    answers = ["." if answer is None else f"{answer:g}" for answer in task["example"]["answers"]]
    beyond = ", ".join(map(str, task["test_lengths"])) or "none"
    print(f"{task['name']}: {task['about']}\n")
    print(f"skill      {task['skill']}")
    print(f"options    {shown(task['options'])}")
    print(f"lengths    training: {task['train_length']}; test: {beyond}")
    print(f"example    inputs  {' '.join(map(str, task['example']['inputs']))}")
    print(f"           answers {' '.join(answers)}")
    print("baselines  best shortcut, accuracy in % [95 % interval]:")
    for length, found in task["baselines"].items():
        low, high = map(percent, found["interval"])
        print(f"           length {length:>4}: {percent(found['accuracy']):>5} [{low}, {high}]  {found['name']}")
    if not task["ranked"]:
        print("           A shortcut solves this task, so its results rank nobody.")
    print(f"shortcuts  best of each feature class at length {task['train_length']}, in %:")
    for found in task["shortcuts"]:
        mark = "  (expresses the skill; not a shortcut)" if found["expresses_skill"] else ""
        print(f"           {percent(found['accuracy']):>5}  {found['feature_class']}: {found['name']}{mark}")
    print()
