"""`whence encodings` and `whence tasks`: what there is to choose from."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from whence.cli.options import Invocation, OutputOptions, Verb
from whence.cli.output import print_json, print_table, stderr
from whence.errors import UserError, from_validation
from whence.experiments.options import positional
from whence.formatting import percent

if TYPE_CHECKING:
    from whence.registry import Choice, Registry
    from whence.tasks.base import Task

ABOUT_ENCODINGS = """List the positional encodings: where each enters a model, its options, its length extrapolation

Write one as NAME:OPTION=VALUE,OPTION=VALUE wherever an encoding is asked for, and put a transform of positions
in front with a plus sign:  rope:scaling=yarn,factor=4   randomized:span=512+alibi"""

ABOUT_TASKS = """List the tasks, or describe some: the skill they test, and the accuracy of predictors without it

  whence tasks                       all tasks, one line each
  whence tasks k_back_recall:k=5     one task: example, options, lengths, shortcut baselines and the shortcuts found

The shortcut baseline is the best accuracy of a predictor without the skill, searched on 20,000 held-out answers. It is
packaged for default options; for others it is searched once (about 10 s per length) and remembered.

Write a task as NAME:OPTION=VALUE:  k_back_recall:k=5"""


class TaskOptions(OutputOptions):
    """Which tasks to describe."""

    names: tuple[str, ...] = Field(
        default=(), description="those to describe; none: list all", json_schema_extra=positional("NAME[:OPTION=VALUE]")
    )


def _encodings(invocation: Invocation) -> int:
    options = invocation.options(OutputOptions)
    from whence.encodings import ENCODINGS
    from whence.encodings.transforms import TRANSFORMS

    encodings = [
        {
            "name": encoding.name,
            "class": encoding.__name__,
            "summary": encoding.summary(),
            "enters": list(encoding.hooks()),
            "options": registry_options(ENCODINGS, encoding.name),
            "extrapolation": encoding.extrapolation,
            "causal_only": encoding.causal_only,
            "admits_transforms": encoding.admits_transforms,
            "reference": encoding.reference,
        }
        for encoding in ENCODINGS
    ]
    transforms = [
        {
            "name": transform.name,
            "class": transform.__name__,
            "summary": transform.summary(),
            "options": registry_options(TRANSFORMS, transform.name),
            "reference": transform.reference,
        }
        for transform in TRANSFORMS
    ]
    if options.json_:
        print_json({"encodings": encodings, "transforms": transforms})
        return 0
    print_table(
        "Encodings",
        ["name", "enters", "options", "past the training length", "reference"],
        [
            [e["name"], ", ".join(e["enters"]) or "—", options_text(e["options"]), e["extrapolation"], e["reference"]]
            for e in encodings
        ],
    )
    print()
    print_table(
        "Transforms of positions (TRANSFORM+ENCODING)",
        ["name", "what it does", "options", "reference"],
        [[t["name"], t["summary"], options_text(t["options"]), t["reference"]] for t in transforms],
    )
    return 0


def _tasks(invocation: Invocation) -> int:
    options = invocation.options(TaskOptions)
    from whence.tasks import TASKS

    try:
        chosen = [TASKS.choose(name) for name in options.names] or [TASKS.choose(name) for name in TASKS.names()]
    except ValidationError as error:
        raise from_validation(error, lambda path: TASKS.names(), "task") from None
    try:
        with stderr.status("Reading shortcut baselines"):
            tasks = [{"name": str(choice), **_facts(choice)} for choice in chosen]
    except ValueError as error:
        raise UserError(f"task: {error}", field="task") from None
    if options.json_:
        print_json({"tasks": tasks})
    elif options.names:
        for task in tasks:
            _print_one(task)
    else:
        print_table(
            "Tasks",
            ["name", "what is asked", "answer", "trained to", "options", "shortcut baseline (%)"],
            [
                [t["name"], t["summary"], t["answers"], str(t["train_length"]), options_text(t["options"]), _highest(t)]
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
        "options": {
            key: {**option, "default": asked[key]} for key, option in registry_options(TASKS, choice.name).items()
        },
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
    print(f"options    {options_text(task['options'])}")
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


def registry_options(registry: Registry[Any], name: str) -> dict[str, Any]:
    schema = registry.choices[name].model_json_schema()
    return {key: value for key, value in schema["properties"].items() if key != "name"}


def options_text(options: dict[str, Any]) -> str:
    """`name=default`, with the other choices behind it where there are only a few."""

    def value(option: dict[str, Any]) -> str:
        default = option.get("default")
        return "|".join([str(default), *(choice for choice in option.get("enum", []) if choice != default)])

    return " ".join(f"{name}={value(option)}" for name, option in options.items()) or "—"


VERBS = {"encodings": Verb(ABOUT_ENCODINGS, _encodings), "tasks": Verb(ABOUT_TASKS, _tasks)}
