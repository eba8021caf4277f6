"""Differences between two comparisons: of the configuration, and of the results, paired by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from whence import stats
from whence.config import Config
from whence.experiments.instrument import Instrument
from whence.experiments.looks import consult
from whence.experiments.options import is_group, is_list
from whence.experiments.table import Criterion, Row, Table
from whence.store.files import flat
from whence.store.runs import Store


@dataclass(frozen=True)
class Change:
    """One cell before and after a change, over the seeds that both comparisons have."""

    table: str
    variant: str
    part: str
    before: str
    """The cell as its table shows it"""
    after: str
    paired: stats.Comparison | None
    """The comparison of after with before; None where one of them is not ranked"""

    def to_json(self) -> dict[str, Any]:
        names = {"table": self.table, "variant": self.variant, "part": self.part}
        paired = self.paired.to_json() if self.paired else None
        return {**names, "before": self.before, "after": self.after, "paired": paired}


def config_changes(before: Config, after: Config) -> dict[str, tuple[Any, Any]]:
    """Fields whose values differ, by dotted name."""
    one, two = flat(_readable(before)), flat(_readable(after))
    names = dict.fromkeys([*one, *two])
    return {name: (one.get(name), two.get(name)) for name in names if one.get(name) != two.get(name)}


def _readable(value: Any) -> Any:
    """The value with choices written as on the command line."""
    if is_list(value):
        return [_readable(item) for item in value]
    if not isinstance(value, BaseModel):
        return value
    fields = type(value).model_fields
    return {name: _readable(getattr(value, name)) for name in fields} if is_group(value) else str(value)


def changes(
    instrument: Instrument[Any, Any], before: Sequence[Table[Any]], after: Sequence[Table[Any]], store: Store
) -> list[Change]:
    """Compare the cells that both comparisons have: tables with the same title or place, rows with the same name.

    The error is controlled over all tested cells and over those that were shown before.
    """
    cells = [
        (one, two, old, new, criterion)
        for one, two in matched(before, after)
        for old in one.rows
        for new in two.rows
        if old.name == new.name
        for criterion in two.planned.criteria
        if old.cell(criterion.column).per_seed and new.cell(criterion.column).per_seed
    ]
    earlier = consult(
        [result for _, _, old, new, _ in cells for row in (old, new) for result in row.results],
        [(old.results[0].run, new.results[0].run, by.look or by.part) for _, _, old, new, by in cells],
        store,
        "change",
    )
    tables = (*before, *after)
    sequential = any(table.design == "sequential" for table in tables)
    complete = all(row.complete for table in tables for row in table.rows)
    design = earlier.design("sequential" if sequential else "fixed", complete=complete)
    pairs = [_pair(old, new, criterion) for _, _, old, new, criterion in cells]
    compared = stats.compare(pairs, design=design, others=earlier.comparisons) if design else [None] * len(pairs)
    result: list[Change] = []
    for (one, two, old, new, criterion), c in zip(cells, compared, strict=True):
        ranked = all(instrument.comparable(t.planned, row, criterion) for t, row in ((one, old), (two, new)))
        was, now = (cell.verdict or cell.text for cell in (old.cell(criterion.column), new.cell(criterion.column)))
        result.append(Change(two.title, new.name, criterion.part, was, now, c if c and c.n and ranked else None))
    return result


def _pair(old: Row[Any], new: Row[Any], criterion: Criterion) -> stats.Pair:
    scores = {"after": new.cell(criterion.column).per_seed, "before": old.cell(criterion.column).per_seed}
    failed = {"after": new.diverged, "before": old.diverged}
    return stats.pair(criterion.metric, "after", "before", scores, failed=failed, part=criterion.part)


def matched(before: Sequence[Table[Any]], after: Sequence[Table[Any]]) -> list[tuple[Table[Any], Table[Any]]]:
    """Pairs of tables with the same title; then of tables with the same first part of the title, in order."""
    pairs: list[tuple[Table[Any], Table[Any]]] = []
    for subject in dict.fromkeys(_subject(table) for table in before):
        ones, twos = ([t for t in tables if _subject(t) == subject] for tables in (before, after))
        alike = [(one, two) for one in ones for two in twos if one.title == two.title]
        left = [[t for t in tables if t.title not in {one.title for one, _ in alike}] for tables in (ones, twos)]
        pairs += alike + list(zip(*left, strict=False))
    return pairs


def _subject(table: Table[Any]) -> str:
    return table.title.split(" · ")[0]
