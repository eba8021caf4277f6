"""From what the store holds to tables with verdicts: `tabulate`, the one function that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from whence import stats
from whence.experiments.instrument import Instrument
from whence.experiments.looks import Earlier, consult
from whence.experiments.results import read_results
from whence.experiments.table import Family, PlannedTable, Row, Table
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

    `ends`: how the processes of this comparison ended. Earlier looks at the same variants decide which test applies
    (`whence.experiments.looks`). Runs that were chosen by hand, maybe by their results, are not a planned comparison,
    and not `tested`.
    """
    rows = []
    for planned in plan:
        results = {name: tuple(read_results(runs, store, ends)) for name, runs in planned.variants.items()}
        rows.append(tuple(instrument.rows(planned, [Row(name, of) for name, of in results.items()], store)))
    tables = [
        Table(planned, tuple(instrument.columns(planned, of)), of, family_name=family)
        for planned, of in zip(plan, rows, strict=True)
    ]
    if tested:
        tables = _tested(instrument, tables, store, design, family)
    return [_with_words(instrument, table) for table in tables]


def _with_words(instrument: Instrument[Any, R], table: Table[R]) -> Table[R]:
    table = replace(table, caption=instrument.caption(table))
    return replace(table, findings=tuple(instrument.findings(table)))


def _tested(
    instrument: Instrument[Any, R], tables: Sequence[Table[R]], store: Store, design: stats.TestDesign, family: Family
) -> list[Table[R]]:
    """With verdicts, each by the test that its plan and earlier looks permit."""
    complete = [all(row.complete for row in table.rows) for table in tables]
    if family == "sheet":
        complete = [all(complete)] * len(complete)
    found = []
    earlier = _consult(tables, store, family)
    designs: list[stats.TestDesign | None] = [
        before.design(design, complete=whole) for before, whole in zip(earlier, complete, strict=True)
    ]
    compared = _compare(tables, designs, earlier, family)
    for table, applies, before, whole, comparisons in zip(tables, designs, earlier, complete, compared, strict=True):
        visible = [
            c
            for contrast, c in zip(table.planned.contrasts, comparisons, strict=False)
            if c.n and all(instrument.comparable(table.planned, table.row(name), contrast.by) for name in (c.a, c.b))
        ]
        found.append(
            replace(
                table,
                comparisons=tuple(visible),
                design=applies or design,
                family=comparisons[0].family if comparisons else 0,
                earlier=before.seeds,
                untested=before.why_not(design, complete=whole),
            )
        )
    return found


def _consult(tables: Sequence[Table[R]], store: Store, family: Family) -> list[Earlier]:
    """What earlier looks permit for each table; these results count as shown from now on."""
    groups = [tables] if family == "sheet" else [[table] for table in tables]
    earlier = [
        consult(
            [result.run for table in group for row in table.rows for result in row.results],
            {result.run.id for table in group for row in table.rows for result in row.results if result.ended},
            [
                (table.row(c.a).results[0].run, table.row(c.b).results[0].run, c.by.look or c.by.part)
                for table in group
                for c in table.planned.contrasts
            ],
            store,
        )
        for group in groups
    ]
    return earlier * len(tables) if family == "sheet" else earlier


def _compare(
    tables: Sequence[Table[R]],
    designs: Sequence[stats.TestDesign | None],
    earlier: Sequence[Earlier],
    family: Family,
) -> list[list[stats.Comparison]]:
    """Every planned contrast, with the error controlled over a table or over all of them; none without a design."""
    pairs = [_pairs(table) for table in tables]
    if family == "sheet" and tables:
        design = designs[0]
        every = [pair for of in pairs for pair in of]
        compared = iter(stats.compare(every, design=design, others=earlier[0].comparisons) if design else [])
        return [[next(compared) for _ in of] if design else [] for of in pairs]
    return [
        stats.compare(of, design=design, others=before.comparisons) if design else []
        for of, design, before in zip(pairs, designs, earlier, strict=True)
    ]


def _pairs(table: Table[R]) -> list[stats.Pair]:
    diverged = {row.name: row.diverged for row in table.rows}
    return [
        stats.pair(
            contrast.by.metric,
            contrast.a,
            contrast.b,
            {name: table.row(name).cell(contrast.by.column).per_seed for name in (contrast.a, contrast.b)},
            failed=diverged,
            part=contrast.by.part,
            on=table.planned.on,
        )
        for contrast in table.planned.contrasts
    ]
