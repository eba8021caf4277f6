"""Shortcut baselines: packaged for every registered task, else searched once and saved in a cache folder."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from whence.registry import Choice
from whence.shortcuts.search import SEARCH_VERSION, ShortcutScore, best, search
from whence.tasks import TASKS, Task

PACKAGED = Path(__file__).with_name("baselines.json")
SCORES = TypeAdapter(list[ShortcutScore])
_in_memory: dict[str, list[ShortcutScore]] = {}


def scores(choice: Choice[Task], length: int, first: int = 0) -> list[ShortcutScore]:
    """The best score of every feature class, best first. Read from a file, or computed in several seconds."""
    name = key(choice, length, first)
    if name not in _in_memory:
        _in_memory[name] = packaged().get(name) or _read(name) or _search_now(name, choice, length, first)
    return list(_in_memory[name])


def stated_baseline(choice: Choice[Task], length: int, first: int = 0) -> ShortcutScore:
    """The accuracy that a model must exceed: the best of all classes that do not express the skill."""
    return best(scores(choice, length, first))


def key(choice: Choice[Task], length: int, first: int = 0) -> str:
    """The key of a search. It includes the versions of the task and of the search.

    In tasks whose answers are all of the same kind, the first position that counts is always 0.
    """
    first = first if choice.variant.dense else 0
    return f"{choice} v{choice.variant.version} search {SEARCH_VERSION} length {length} first {first}"


def _search_now(name: str, choice: Choice[Task], length: int, first: int) -> list[ShortcutScore]:
    print(
        f"Computing the shortcut baseline of {choice} at length {length} (once, about 10 s)",
        file=sys.stderr,
        flush=True,
    )
    results = searched(str(choice), length, first)
    _save(name, results)
    return results


def searched(task: str, length: int, first: int) -> list[ShortcutScore]:
    """The whole search, from the task as a user writes it: the best of each class, and all that the task declares."""
    classes: dict[str, ShortcutScore] = {}
    for score in search(TASKS.choose(task).build(), length, first):  # the best first
        classes.setdefault(score.name if score.feature_class == "declared" else score.feature_class, score)
    return [score.rounded() for score in classes.values()]


@functools.cache
def packaged() -> Mapping[str, list[ShortcutScore]]:
    return TypeAdapter(dict[str, list[ShortcutScore]]).validate_json(PACKAGED.read_bytes()) if PACKAGED.exists() else {}


def _file(name: str) -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    file = f"{name.replace(' ', '_').replace(':', '.').replace('*', 'x')}.json"
    return caches / "whence" / f"shortcuts-{SEARCH_VERSION}" / file


def _read(name: str) -> list[ShortcutScore] | None:
    try:
        return SCORES.validate_json(_file(name).read_bytes())
    except (OSError, RuntimeError, ValueError):  # no home directory, no file, or a damaged file: search again
        return None


def _save(name: str, scores: list[ShortcutScore]) -> None:
    """Write atomically, because other processes may read the file. Does nothing if the folder is not writable."""
    try:
        file = _file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
            part.write(SCORES.dump_json(scores))
        os.replace(part.name, file)
    except (OSError, RuntimeError):
        return
