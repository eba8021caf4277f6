"""`whence tasks`."""

from __future__ import annotations

from whence.cli.encodings import options_of, shown
from whence.cli.options import Output, parse_options
from whence.cli.output import percent, print_json, print_table

DESCRIPTION = """Tasks: what a model is asked, and the floors: what each shortcut scores without the skill in question.

Write one as NAME:OPTION=VALUE wherever a task is asked for:  k_back_recall:k=5"""
LENGTH = 32


def main(arguments: list[str]) -> int:
    options, _ = parse_options(Output, arguments, prog="whence tasks", description=DESCRIPTION)
    from whence.tasks import TASKS

    tasks = [
        {
            "name": task.name,
            "summary": task.summary(),
            "answers": f"{task.goal} per {task.per}",
            "options": options_of(TASKS, task.name),
            "floors": TASKS.choose(task.name).build().floors(LENGTH),
        }
        for task in TASKS
    ]
    if options.json_:
        print_json({"length": LENGTH, "tasks": tasks})
        return 0
    print_table(
        "Tasks",
        ["name", "what is asked", "answers", "options", f"floors in % at length {LENGTH}"],
        [
            [
                task["name"],
                task["summary"],
                task["answers"],
                shown(task["options"]),
                ", ".join(f"{name} {percent(value)}" for name, value in task["floors"].items()),
            ]
            for task in tasks
        ],
    )
    return 0
