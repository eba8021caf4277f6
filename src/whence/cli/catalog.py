"""`whence encodings` and `whence tasks`: lists of the available encodings and tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError
from pydantic_core import to_jsonable_python

from whence.cli.options import Invocation, OutputOptions, Verb
from whence.cli.output import print_json, print_table, print_text, stderr
from whence.errors import UserError, from_validation
from whence.experiments.options import positional
from whence.formatting import percent

if TYPE_CHECKING:
    from whence.registry import Choice, Registry
    from whence.shortcuts.baselines import ShortcutScore
    from whence.tasks import Task

Options = Mapping[str, Mapping[str, Any]]
"""By name, the JSON schema of each"""

ABOUT_ENCODINGS = """List the positional encodings: where each enters the model, its options, its length extrapolation

Options are written as NAME:OPTION=VALUE,OPTION=VALUE, and a transform of positions in front with a plus sign:

  whence arena compare --encodings rope:scaling=yarn,factor=4 randomized:span=512+alibi"""

ABOUT_TASKS = """List the tasks, or describe some: the skill they test, and the accuracy of predictors without it

  whence tasks                       all tasks, one line each
  whence tasks k_back_recall:k=5     one task: example, options, lengths and shortcut baselines

The shortcut baseline is the best accuracy of a predictor without the skill of the task, on 20,000 held-out answers. It
is packaged for default options. For other options it is computed once (about 10 s per length) and cached."""


class TaskOptions(OutputOptions):
    names: tuple[str, ...] = Field(
        default=(),
        description="tasks to describe; default: list all",
        json_schema_extra=positional("NAME[:OPTION=VALUE]"),
    )


def _encodings(invocation: Invocation) -> int:
    options = invocation.options(OutputOptions)
    from whence.encodings import ENCODINGS
    from whence.encodings.transforms import TRANSFORMS

    encodings = [
        {
            **_described(ENCODINGS, encoding),
            "enters": list(encoding.hooks()),
            "extrapolation": encoding.extrapolation,
            "causal_only": encoding.causal_only,
            "admits_transforms": encoding.admits_transforms,
        }
        for encoding in ENCODINGS
    ]
    transforms = [_described(TRANSFORMS, transform) for transform in TRANSFORMS]
    if options.json_:
        print_json({"encodings": encodings, "transforms": transforms})
        return 0
    print_table(
        "Encodings",
        ["name", "enters through", "options", "beyond the training length", "reference"],
        [
            [e["name"], ", ".join(e["enters"]) or "—", options_text(e["options"]), e["extrapolation"], e["reference"]]
            for e in encodings
        ],
    )
    print_text()
    print_table(
        "Transforms of positions (TRANSFORM+ENCODING)",
        ["name", "description", "options", "reference"],
        [[t["name"], t["summary"], options_text(t["options"]), t["reference"]] for t in transforms],
    )
    return 0


def _described(registry: Registry[Any], variant: Any) -> dict[str, Any]:
    return {
        "name": variant.name,
        "class": variant.__name__,
        "summary": variant.summary(),
        "options": registry_options(registry, variant.name),
        "reference": variant.reference,
    }


def _tasks(invocation: Invocation) -> int:
    options = invocation.options(TaskOptions)
    from whence.tasks import TASKS

    try:
        chosen = [TASKS.choose(name) for name in options.names or TASKS.names()]
        with stderr.status("Reading shortcut baselines"):
            sheets = [_sheet(choice) for choice in chosen]
    except ValidationError as error:
        raise from_validation(error, lambda path: TASKS.names(), "task") from None
    except ValueError as error:
        raise UserError(f"task: {error}") from None
    if options.json_:
        print_json({"tasks": to_jsonable_python(sheets)})
    elif options.names:
        for sheet in sheets:
            _print_one(sheet)
    else:
        print_table(
            "Tasks",
            ["name", "description", "answer", "training length", "options", "shortcut baseline (%)"],
            [_row(sheet) for sheet in sheets],
        )
    return 0


@dataclass(frozen=True)
class TaskSheet:
    """Description of one task with the given options."""

    name: str
    summary: str
    about: str
    skill: str
    ranked: bool
    answers: str
    options: Options
    train_length: int
    test_lengths: tuple[int, ...]
    example: dict[str, Sequence[float | None]]
    baselines: dict[int, ShortcutScore]
    """By length: the best shortcut"""
    shortcuts: list[ShortcutScore]
    """At the training length: the best of each feature class"""


def _sheet(choice: Choice[Task]) -> TaskSheet:
    import torch

    from whence.shortcuts.baselines import scores
    from whence.shortcuts.search import SOLVED, best
    from whence.tasks import TASKS

    task, chosen = choice.build(), choice.options()
    length = max(task.shortest, min(task.train_length, task.longest or task.train_length))
    test_lengths = task.ood_lengths(length)
    batch = task.sample(torch.Generator().manual_seed(0), 1, max(task.shortest, min(8, length)))
    inputs: list[int] = batch.inputs[0].tolist()
    known = {n: scores(choice, n, length if n > length else 0) for n in (length, *test_lengths)}
    return TaskSheet(
        name=str(choice),
        summary=type(task).summary(),
        about=type(task).about(),
        skill=task.skill,
        ranked=task.ranked and best(known[length]).accuracy < SOLVED,
        answers=f"per {task.per}" + (", regression" if task.goal == "regression" else ""),
        options={k: {**option, "default": chosen[k]} for k, option in registry_options(TASKS, choice.name).items()},
        train_length=length,
        test_lengths=test_lengths,
        example={"inputs": inputs, "answers": task.solve(inputs)},
        baselines={n: best(those) for n, those in known.items()},
        shortcuts=known[length],
    )


def _row(sheet: TaskSheet) -> list[str]:
    best = sheet.baselines[sheet.train_length]
    baseline = f"{percent(best.accuracy)} ({best.name})" + ("" if sheet.ranked else "; not ranked")
    options = options_text(sheet.options)
    return [sheet.name, sheet.summary, sheet.answers, str(sheet.train_length), options, baseline]


def _print_one(sheet: TaskSheet) -> None:
    answers = ["." if answer is None else f"{answer:g}" for answer in sheet.example["answers"]]
    print_text(f"{sheet.name}: {sheet.about}\n")
    print_text(f"skill      {sheet.skill}")
    print_text(f"options    {options_text(sheet.options)}")
    print_text(f"lengths    training: {sheet.train_length}; test: {', '.join(map(str, sheet.test_lengths)) or 'none'}")
    print_text(f"example    inputs  {' '.join(map(str, sheet.example['inputs']))}")
    print_text(f"           answers {' '.join(answers)}")
    print_text("baselines  best shortcut, accuracy in % [95 % interval]:")
    for length, score in sheet.baselines.items():
        low, high = map(percent, score.interval)
        print_text(f"           length {length:>4}: {percent(score.accuracy):>5} [{low}, {high}]  {score.name}")
    if not sheet.ranked:
        print_text("           A shortcut solves this task, so its results rank no encoding.")
    print_text(f"shortcuts  best of each feature class at length {sheet.train_length}, in %:")
    for score in sheet.shortcuts:
        mark = "  (expresses the skill; not a shortcut)" if score.expresses_skill else ""
        print_text(f"           {percent(score.accuracy):>5}  {score.feature_class}: {score.name}{mark}")
    print_text()


def registry_options(registry: Registry[Any], name: str) -> Options:
    schema = registry.choices[name].model_json_schema()
    return {key: value for key, value in schema["properties"].items() if key != "name"}


def options_text(options: Options) -> str:
    """`name=default`, followed by the other choices of options with a closed list."""

    texts = []
    for name, option in options.items():
        default = option.get("default")
        others = [choice for choice in option.get("enum", ()) if choice != default]
        texts.append(f"{name}={'|'.join([str(default), *others])}")
    return " ".join(texts) or "—"


VERBS = {"encodings": Verb(ABOUT_ENCODINGS, _encodings), "tasks": Verb(ABOUT_TASKS, _tasks)}
