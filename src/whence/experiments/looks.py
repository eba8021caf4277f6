"""Record of shown results, which keeps the error of later tests controlled.

Stopping or adding seeds after seeing results, leaving out seeds, or comparing only the most promising pair inflates the
error. A look records the seeds whose results were shown, the planned seeds, and the comparisons of the table. For later
tables that share a variant with it:

- The family includes the comparisons that were shown before, at any number of seeds.
- The fixed test applies only if every earlier look with enough seeds for a verdict was part of the same plan.
- If the table adds seeds to those shown before, the sequential test applies.
- If the table leaves out seeds that were shown before, or starts at another seed, it is not tested.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict

from whence.config import Config
from whence.experiments.results import RunResult
from whence.stats import SEEDS_TO_DECIDE, TestDesign
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import addressed_name, canonical, digest
from whence.store.runs import Store
from whence.training.config import AnyRun

PREFIX = "look"
Kind = Literal["table", "change"]
"""Variants of one table, or one variant before and after a change. Each kind is a family of its own"""


Seeds = Annotated[tuple[int, ...], AfterValidator(lambda seeds: tuple(sorted(set(seeds))))]


class Look(Config):
    """The runs and comparisons behind one table, or behind tables that share one error."""

    model_config = ConfigDict(extra="ignore")  # a look that cannot be read would be ignored

    shown: dict[str, Seeds]
    """By variant, the seeds whose results were shown"""
    planned: dict[str, Seeds]
    comparisons: frozenset[str]
    """Each begins with its kind"""

    def includes(self, other: Look) -> bool:
        """Whether this look makes the other one redundant."""
        return (
            other.comparisons <= self.comparisons
            and all(self.planned.get(name) == seeds for name, seeds in other.planned.items())
            and all(set(seeds) <= set(self.shown[name]) for name, seeds in other.shown.items())
        )


@dataclass(frozen=True)
class Earlier:
    """The tests that earlier looks at the same variants permit."""

    comparisons: int
    """Number of comparisons that were shown before and are not in this table; they belong to its family"""
    seeds: int
    """Largest number of seeds of a look of another plan; 0 if there was none"""
    permits: Literal["fixed", "sequential", "nothing"]

    def design(self, requested: TestDesign, *, complete: bool) -> TestDesign | None:
        """The test that applies; None if the table is not tested."""
        if self.permits == "nothing" or (requested == self.permits == "fixed" and not complete):
            return None
        return "sequential" if "sequential" in (requested, self.permits) else "fixed"

    @property
    def why_not(self) -> str:
        """Why a table is not tested."""
        if self.permits == "nothing":
            return (
                f"Not tested: {self.seeds} seeds of these variants were shown before, and this table leaves some of "
                "them out. Include all of them, from the same first seed on"
            )
        return "Not tested yet: verdicts are given when all planned runs have ended"


def variant(run: AnyRun) -> str:
    """Hash of everything that determines the training of a run, except the seed."""
    return digest(canonical({**run.training_document(), "seed": 0, "versions": run.versions()}))[:12]


def consult(
    results: Iterable[RunResult[AnyRun]], pairs: Iterable[tuple[AnyRun, AnyRun, str]], store: Store, kind: Kind
) -> Earlier:
    """The tests that earlier looks permit. These results are recorded as shown.

    Args:
        pairs: for each comparison a run of either variant, and which of their scores are compared.
    """
    shown: dict[str, set[int]] = {}
    planned: dict[str, set[int]] = {}
    for result in results:
        name = variant(result.run)
        planned.setdefault(name, set()).add(result.run.seed)
        shown.setdefault(name, set()).update({result.run.seed} if result.ended else ())
    names = [(*sorted((variant(a), variant(b))), part) for a, b, part in pairs]
    comparisons = frozenset(" ".join((kind, *those)) for those in names)
    look = Look(shown=_ordered(shown), planned=_ordered(planned), comparisons=comparisons)
    recorded = _recorded(store)
    if any(look.shown.values()) and look.comparisons:
        _record(look, recorded, store)
    return _permitted(look, recorded.values(), kind)


def _permitted(look: Look, others: Iterable[Look], kind: Kind) -> Earlier:
    comparisons, most, permits = set(look.comparisons), 0, "fixed"
    for other in others:
        common = set(look.shown) & set(other.shown)
        if not common:
            continue
        comparisons |= {name for name in other.comparisons if name.startswith(f"{kind} ")}
        for name in common:
            before, now = other.shown[name], look.shown[name]
            if len(before) < SEEDS_TO_DECIDE or other.planned[name] == look.planned[name]:
                continue
            most = max(most, len(before))
            extends = set(before) <= set(now) and before[0] == now[0]
            permits = "sequential" if extends and permits != "nothing" else "nothing"
    return Earlier(len(comparisons) - len(look.comparisons), most, permits)


def _record(look: Look, recorded: dict[Path, Look], store: Store) -> None:
    """Write a look to a file named by its content. It replaces earlier looks that it includes."""
    if any(other.includes(look) for other in recorded.values()):
        return
    body = {**look.model_dump(mode="json"), "comparisons": sorted(look.comparisons)}
    content = (json.dumps(body, sort_keys=True) + "\n").encode()
    path = store.reports / addressed_name(PREFIX, content, ".json")
    with suppress(OSError):  # a store that cannot be written can still be read
        disk.write_atomically(path, content)
        for old, other in recorded.items():
            if old != path and look.includes(other):
                disk.remove(old)


def _recorded(store: Store) -> dict[Path, Look]:
    looks: dict[Path, Look] = {}
    for path in disk.entries(store.reports):
        if not (path.name.startswith(f"{PREFIX}-") and path.suffix == ".json"):
            continue
        with suppress(OSError, ValueError, CorruptFileError):
            look = Look.model_validate_json(disk.read(path))
            if set(look.shown) == set(look.planned):
                looks[path] = look
    return looks


def _ordered(seeds: dict[str, set[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(those)) for name, those in seeds.items()}
