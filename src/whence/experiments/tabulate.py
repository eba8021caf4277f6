"""Tables with verdicts from the runs of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from whence import stats
from whence.experiments.instrument import Instrument
from whence.experiments.looks import consult
from whence.experiments.results import read_results
from whence.experiments.table import Criterion, Family, PlannedTable, Row, Table
from whence.store.runs import Store
from whence.training.config import AnyRun

R = TypeVar("R", bound=AnyRun)


def tabulate(
    instrument: Instrument[Any, R],
    plan: Sequence[PlannedTable[R]],
    store: Store,
    ends: Mapping[str, str] = {},
    *,
    design: stats.TestDesign = "fixed",
    family: Family = "table",
    tested: bool = True,
) -> list[Table[R]]:
    """Tables in the order of the plan.

    Earlier looks at the same variants determine which test applies (`whence.experiments.looks`).

    Args:
        ends: how the processes of this comparison ended, by run id.
        tested: False for runs that were chosen individually, possibly by their results.
    """
    tables: list[Table[R]] = []
    for planned in plan:
        variants = [Row(name, tuple(read_results(runs, store, ends))) for name, runs in planned.variants.items()]
        rows = tuple(instrument.rows(planned, variants, store))
        tables.append(Table(planned, tuple(instrument.columns(planned, rows)), rows, family_name=family))
    if tested:
        families = [tables] if family == "sheet" else [[table] for table in tables]
        tables = [table for own in families for table in _tested(instrument, own, store, design)]
    tables = [replace(table, caption=instrument.caption(table)) for table in tables]
    return [
        replace(table, conclusion=instrument.conclusion(table), findings=tuple(instrument.findings(table)))
        for table in tables
    ]


def _tested(
    instrument: Instrument[Any, R], tables: Sequence[Table[R]], store: Store, design: stats.TestDesign
) -> Iterator[Table[R]]:
    """Tables of one family, with verdicts from the test that their plan and earlier looks permit."""
    contrasts = [(table, contrast) for table in tables for contrast in table.planned.contrasts]
    earlier = consult(
        [result for table in tables for row in table.rows for result in row.results],
        [(t.row(a).results[0].run, t.row(b).results[0].run, by.look or by.part) for t, (a, b, by) in contrasts],
        store,
        "table",
    )
    applies = earlier.design(design, complete=all(row.complete for table in tables for row in table.rows))
    pairs = [_pair(table, *contrast) for table, contrast in contrasts]
    compared = iter(stats.compare(pairs, design=applies, others=earlier.comparisons) if applies else [])
    for table in tables:
        own = list(zip(table.planned.contrasts, compared, strict=False))
        visible = [
            c
            for (*names, by), c in own
            if c.n and all(instrument.comparable(table.planned, table.row(name), by) for name in names)
        ]
        yield replace(
            table,
            comparisons=tuple(visible),
            design=applies or design,
            family=own[0][1].family if own else 0,
            earlier=earlier.seeds,
            untested="" if applies else earlier.why_not,
        )


def _pair(table: Table[R], a: str, b: str, by: Criterion) -> stats.Pair:
    scores = {name: table.row(name).cell(by.column).per_seed for name in (a, b)}
    failed = {name: table.row(name).diverged for name in (a, b)}
    return stats.pair(by.metric, a, b, scores, failed=failed, part=by.part, on=table.planned.on)
