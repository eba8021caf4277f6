"""`whence tasks`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from whence.cli.encodings import options_of, shown
from whence.cli.options import Output, parse_options
from whence.cli.output import percent, print_json, print_table, stderr
from whence.errors import UserError

if TYPE_CHECKING:
    from whence.tasks.base import Task

DESCRIPTION = """Tasks: what a model is asked, and the floors: what each shortcut scores without the skill in question.

  whence tasks                       all of them, in one line each
  whence tasks k_back_recall:k=5     one: worked example, options, lengths, a sequence drawn from it, floors

Write one as NAME:OPTION=VALUE wherever a task is asked for:  k_back_recall:k=5"""


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
        with stderr.status("measuring what shortcuts score"):
            tasks = [
                {"name": str(choice), **_facts(choice.name, choice.build(), choice.options())} for choice in chosen
            ]
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
            ["name", "what is asked", "answer", "trained to", "options", "highest floor in %"],
            [
                [t["name"], t["summary"], t["answers"], str(t["train_length"]), shown(t["options"]), _highest(t)]
                for t in tasks
            ],
        )
    return 0


def _facts(name: str, task: Task, asked: dict[str, Any]) -> dict[str, Any]:
    import torch

    from whence.tasks import TASKS

    length = max(task.shortest, min(task.train_length, task.longest or task.train_length))
    batch = task.sample(torch.Generator().manual_seed(0), 1, max(task.shortest, min(8, length)))
    inputs = batch.inputs[0].tolist()
    return {
        "summary": type(task).summary(),
        "about": inspect.cleandoc(type(task).__doc__ or ""),
        "answers": f"per {task.per}" + (", regression" if task.goal == "regression" else ""),
        "options": {key: {**option, "default": asked[key]} for key, option in options_of(TASKS, name).items()},
        "train_length": length,
        "test_lengths": [n for n in task.lengths_beyond(length) if task.longest is None or n <= task.longest],
        "example": {"inputs": inputs, "answers": task.solve(inputs)},
        "floors": task.floors(length),
    }


def _highest(task: dict[str, Any]) -> str:
    name, value = max(task["floors"].items(), key=lambda item: item[1])
    return f"{percent(value)} ({name})"


def _print_one(task: dict[str, Any]) -> None:
    answers = ["." if answer is None else f"{answer:g}" for answer in task["example"]["answers"]]
    beyond = ", ".join(map(str, task["test_lengths"])) or "none"
    print(f"{task['name']}: {task['about']}\n")
    print(f"options   {shown(task['options'])}")
    print(f"lengths   trained to {task['train_length']}, beyond: {beyond}")
    print(f"drawn     inputs  {' '.join(map(str, task['example']['inputs']))}")
    print(f"          answers {' '.join(answers)}")
    print(f"floors    in % at length {task['train_length']}:")
    for name, value in sorted(task["floors"].items(), key=lambda item: -item[1]):
        print(f"          {percent(value):>5}  {name}")
    print()
