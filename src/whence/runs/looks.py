"""Which verdicts of a store have been shown, so that nobody is misled by looking again.

Adding seeds because of a verdict, asking for fewer of them, or asking only for the pair that looked best are ways to
find a false winner. A look records the seeds of every variant and the comparisons of a table whose verdicts were
shown. A later table that shares a variant with it, over other seeds, is tested sequentially, and its family includes
the comparisons that were shown before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from whence.runs.files import addressed_name, canonical, digest, write_atomically
from whence.runs.spec import RunSpec
from whence.runs.store import Store
from whence.stats import SEEDS_TO_DECIDE

PREFIX = "look"


@dataclass(frozen=True)
class Look:
    """The runs and comparisons behind the verdicts of one table."""

    seeds: dict[str, tuple[int, ...]]
    """By variant (the hash of a run's description without its seed), the seeds that were planned"""
    comparisons: frozenset[str]

    @classmethod
    def of(cls, runs: Iterable[RunSpec], pairs: Iterable[tuple[RunSpec, RunSpec, str]]) -> Look:
        """`pairs`: of any two runs, for each comparison, the variants compared and which of their scores."""
        seeds: dict[str, set[int]] = {}
        for run in runs:
            seeds.setdefault(variant(run), set()).add(run.seed)
        names = frozenset(f"{min(variant(a), variant(b))} {max(variant(a), variant(b))} {part}" for a, b, part in pairs)
        return cls({name: tuple(sorted(those)) for name, those in seeds.items()}, names)


@dataclass(frozen=True)
class Earlier:
    """What was shown before of the same variants."""

    seeds: int = 0
    """The largest number of seeds of a look at other seeds; 0: there was none"""
    comparisons: int = 0
    """Comparisons that were shown with them and are not in this table"""


NEVER = Earlier()


def variant(run: RunSpec) -> str:
    return digest(canonical({**run.document(), "seed": 0, "versions": run.versions()}))[:12]


def consult(
    runs: Sequence[RunSpec], pairs: Iterable[tuple[RunSpec, RunSpec, str]], store: Store, *, complete: bool
) -> Earlier:
    """What was shown before of these variants. If all runs have ended, the verdicts of these are shown now."""
    look = Look.of(runs, pairs)
    found = earlier(look, store)
    if complete and max(map(len, look.seeds.values()), default=0) >= SEEDS_TO_DECIDE:
        record(look, store)
    return found


def record(look: Look, store: Store) -> None:
    """Each look is a file of its own, named by its content: recording it twice changes nothing."""
    body = {"seeds": {name: list(seeds) for name, seeds in look.seeds.items()}, "comparisons": sorted(look.comparisons)}
    content = (json.dumps(body, sort_keys=True) + "\n").encode()
    with suppress(OSError):  # a store that cannot be written can still be read
        write_atomically(store.reports / addressed_name(PREFIX, content, ".json"), content)


def earlier(look: Look, store: Store) -> Earlier:
    shown, seeds = set(look.comparisons), 0
    for other in _recorded(store):
        common = set(look.seeds) & set(other.seeds)
        if not common:
            continue
        shown |= other.comparisons
        if any(look.seeds[name] != other.seeds[name] for name in common):
            seeds = max(seeds, *(len(other.seeds[name]) for name in common))
    return Earlier(seeds, len(shown) - len(look.comparisons))


def _recorded(store: Store) -> Sequence[Look]:
    looks = []
    for path in sorted(store.reports.glob(f"{PREFIX}-*.json")) if store.reports.is_dir() else []:
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            body = json.loads(path.read_bytes())
            seeds = {str(name): tuple(int(seed) for seed in those) for name, those in body["seeds"].items()}
            looks.append(Look(seeds, frozenset(map(str, body["comparisons"]))))
    return looks
