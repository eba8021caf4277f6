"""Search the baselines that are packaged: python -m whence.shortcuts [--only NAME]

Entries that exist for the current versions of the task and of the search are reused, so that an interrupted search
resumes. Entries of other versions are removed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch
import yaml

from whence.registry import Choice
from whence.shortcuts import baselines
from whence.shortcuts.search import ShortcutScore, best
from whence.system import cores
from whence.tasks import TASKS, Task

PRESETS = Path(__file__).parents[1] / "arena" / "presets"
VARIANTS = (
    "copy:answers=blank",
    "reverse:answers=blank",
    "repeat_copy:answers=blank",
    "sort:answers=blank",
    "k_back:k=5",
    "long_range_match:ask=location",
    "reversed_pattern:ask=location",
    "shift_invariant_pattern:ask=detection",
)
SHORTER = (
    ("even_pairs", 16),
    ("k_back_recall:k=1", 16),
    ("long_range_match", 16),
    ("modular_sum", 16),
    ("own_position", 16),
    ("shift_invariant_pattern", 128),
    ("shift_invariant_pattern:ask=detection", 32),
    ("shift_invariant_pattern:ask=detection", 64),
    ("shift_invariant_pattern:ask=detection", 128),
)
"""Further options and lengths, for which earlier searches gave too low a baseline."""
Entry = tuple[Choice[Task], int, int]
"""Task, length, first scored position"""


def packaged_entries() -> dict[str, Entry]:
    """By key: every task with default options, and the tasks of the presets, at the lengths of training and of tests.

    Some other options are added at the training length.
    """
    entries = [entry for name in TASKS.names() for entry in _lengths(TASKS.choose(name))]
    entries += [next(_lengths(TASKS.choose(text))) for text in VARIANTS]
    entries += [(TASKS.choose(text), length, 0) for text, length in SHORTER]
    for path in sorted(PRESETS.glob("*.yaml")):
        entries += _of_preset(yaml.safe_load(path.read_text()))
    return {baselines.key(*entry): entry for entry in entries}


def _of_preset(preset: dict) -> Iterator[Entry]:
    lengths = preset.get("lengths", {})
    swept = {
        name: values.split(",")
        for name, _, values in (part.partition("=") for part in preset.get("sweep", "").split(";"))
    }
    for text in preset["tasks"]:
        choices = [TASKS.choose(text)]
        for option in swept.keys() & choices[0].options():
            choices = [TASKS.choose({**of.model_dump(), option: value}) for of in choices for value in swept[option]]
        for choice in choices:
            for train in swept.get("train_length", [lengths.get("train_length")]):
                yield from _lengths(choice, train and int(train), lengths.get("test_lengths"))


def _lengths(choice: Choice[Task], train: int | None = None, test_lengths: list[int] | None = None) -> Iterator[Entry]:
    """Entries as the arena scores them: OOD lengths of dense tasks are scored beyond the training length only."""
    task: Task = choice.build()
    train = train or task.train_length
    yield choice, train, 0
    for length in task.ood_lengths(train) if test_lengths is None else test_lengths:
        if length:  # 0 alone: no OOD evaluation
            yield choice, length, train


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m whence.shortcuts", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="repeat the search for this task")
    only = parser.parse_args(arguments).only
    entries = packaged_entries()
    anew = {name for name, (choice, _, _) in entries.items() if choice.name == only}
    current = {name: known for name, known in baselines.packaged().items() if name in entries and name not in anew}
    wanted = [name for name in entries if name in anew or (only is None and name not in current)]
    with ProcessPoolExecutor(cores(), get_context("spawn"), torch.set_num_threads, (1,)) as workers:
        searches = {}
        for name in wanted:
            choice, length, first = entries[name]
            searches[workers.submit(baselines.searched, str(choice), length, first)] = name
        for number, done in enumerate(as_completed(searches), 1):
            name, baseline = searches[done], best(done.result())
            current[name] = done.result()
            _write({name: current[name] for name in entries if name in current})
            choice, length, _ = entries[name]
            message = f"[{number}/{len(wanted)}] {choice} at {length}: {baseline.accuracy:.3f} ({baseline.name})"
            print(message, file=sys.stderr, flush=True)
    return 0


def _write(entries: dict[str, list[ShortcutScore]]) -> None:
    """One line per score, so that diffs are readable."""
    lines = {
        name: ",\n".join(" " + json.dumps(score.model_dump(mode="json"), ensure_ascii=False) for score in scores)
        for name, scores in entries.items()
    }
    tables = ",\n".join(f"{json.dumps(name)}: [\n{scores}\n]" for name, scores in lines.items())
    part = baselines.PACKAGED.with_suffix(".part")
    part.write_text(f"{{\n{tables}\n}}\n")
    part.replace(baselines.PACKAGED)


if __name__ == "__main__":
    sys.exit(main())
