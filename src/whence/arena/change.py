"""Two comparisons side by side: what was changed, and what changed with it, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whence import stats
from whence.arena.score import PARTS, Part
from whence.arena.spec import ArenaSpec
from whence.arena.table import Row, Table
from whence.runs.files import flat
from whence.runs.looks import Earlier, consult
from whence.runs.store import Store


@dataclass(frozen=True)
class Change:
    """One cell before and after, over the seeds that both have."""

    table: str
    encoding: str
    part: Part
    before: str
    """Verdict."""
    after: str
    paired: stats.Comparison | None
    """After against before; None where a cell at chance would have to be ranked."""

    def to_json(self) -> dict[str, Any]:
        paired = self.paired.to_json() if self.paired else None
        return {
            "table": self.table,
            "encoding": self.encoding,
            "part": self.part,
            "before": self.before,
            "after": self.after,
            "paired": paired,
        }


def spec_changes(before: ArenaSpec, after: ArenaSpec) -> dict[str, tuple[Any, Any]]:
    """Fields whose values differ, by dotted name."""
    one, two = flat(_readable(before)), flat(_readable(after))
    names = dict.fromkeys([*one, *two])
    return {name: (one.get(name), two.get(name)) for name in names if one.get(name) != two.get(name)}


def _readable(spec: ArenaSpec) -> dict[str, Any]:
    document = spec.model_dump(mode="json")
    names = {"tasks": [str(t) for t in spec.tasks], "encodings": [str(e) for e in spec.encodings]}
    return document | names | {"model": document["model"] | {"mixer": str(spec.model.mixer)}}


def changes(before: Sequence[Table], after: Sequence[Table], store: Store) -> list[Change]:
    """Cells that both have: tables of the same task, in order; encodings of the same name.

    One correction over all cells that are tested, and over others that were shown before.
    """
    cells = [
        (two.title, old, new, part)
        for one, two in matched(before, after)
        for old in one.rows
        for new in two.rows
        if old.encoding == new.encoding
        for part in PARTS
        if old.score(part) and new.score(part)
    ]
    pairs = [
        stats.pair(
            stats.ACCURACY,
            "after",
            "before",
            {"after": new.by_seed(part), "before": old.by_seed(part)},
            failed={"after": new.diverged, "before": old.diverged},
            part=part,
        )
        for _, old, new, part in cells
    ]
    earlier = _looked_at(cells, store)
    tables = (*before, *after)
    requested = "sequential" if any(table.inference.design == "sequential" for table in tables) else "fixed"
    complete = all(row.complete for table in tables for row in table.rows)
    design = earlier.design(requested, complete=complete)
    compared = stats.compare(pairs, design=design, others=earlier.comparisons) if design else [None] * len(pairs)
    return [
        Change(
            title,
            new.encoding,
            part,
            *_verdicts(old, new, part),
            c if c and c.n and _rankable(old, new, part) else None,
        )
        for (title, old, new, part), c in zip(cells, compared, strict=True)
    ]


def _looked_at(cells: Sequence[tuple[str, Row, Row, Part]], store: Store) -> Earlier:
    rows = [row for _, old, new, _ in cells for row in (old, new)]
    runs = {run.id: run for row in rows for run in row.planned}
    pairs = [(old.planned[0], new.planned[0], part) for _, old, new, part in cells]
    return consult(list(runs.values()), frozenset().union(*(row.ended for row in rows)), pairs, store, "change")


def _verdicts(old: Row, new: Row, part: Part) -> tuple[str, str]:
    before, after = (row.verdict if part == "id" else row.beyond_verdict for row in (old, new))
    return before, after


def _rankable(old: Row, new: Row, part: Part) -> bool:
    return len(stats.rankable(dict(zip(("before", "after"), _verdicts(old, new, part), strict=True)))) == 2


def matched(before: Sequence[Table], after: Sequence[Table]) -> list[tuple[Table, Table]]:
    """Tables of the same task; where there are several, those of the same title, then those in the same place."""
    pairs = []
    for task in dict.fromkeys(table.task for table in before):
        ones, twos = ([t for t in tables if t.task == task] for tables in (before, after))
        alike = [(one, two) for one in ones for two in twos if one.title == two.title]
        left = [[t for t in tables if t.title not in {one.title for one, _ in alike}] for tables in (ones, twos)]
        pairs += alike + list(zip(*left, strict=False))
    return pairs
