"""What every verb that compares does: read the configuration, run, print the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from whence.cli.live import Watcher
from whence.cli.options import Engine, parse
from whence.cli.output import print_json, print_table, telling
from whence.cli.sweep import exit_code
from whence.experiments.comparison import ComparisonResult, check_plan, run_comparison
from whence.experiments.instrument import ComparisonConfig, Instrument
from whence.experiments.table import Table
from whence.store.runs import Store


def compare(
    instrument: Instrument[Any, Any],
    arguments: list[str],
    description: str,
    options_class: type[Engine] = Engine,
    adapt: Callable[[Any, Any], Any] = lambda config, options: config,
) -> int:
    """`adapt`: the configuration, changed by options that are not part of it."""
    prog = " ".join(("whence", *instrument.command))
    config, options = parse(
        instrument.config, options_class, arguments, prog=prog, description=description, presets=instrument.presets
    )
    config, store = adapt(config, options), Store(options.store)
    minutes = getattr(options, "minutes", None)
    if options.print_spec:
        check_plan(instrument, config, store)
        print_json(config.model_dump(mode="json"))
        return 0
    with telling("") as tell:
        result = run_comparison(
            instrument, config, store, options.execution, minutes=minutes, watch=Watcher, on_progress=tell
        )
    if options.json_:
        print_json(result.to_json())
        return exit_code(result.ends)
    for table in result.tables:
        print_comparison(table)
    print_summary(instrument, result.tables)
    if config.until_decided:
        print(budget_note(result, config))
    if result.report:
        print(f"report   {result.report}")
    if not result.interrupted:
        print(f"command  {result.command}")
    return exit_code(result.ends)


def print_summary(instrument: Instrument[Any, Any], tables: Sequence[Table[Any]]) -> None:
    summary = instrument.summary(tables)
    if summary:
        print_table(f"{summary.title}. {summary.note}", summary.columns, summary.rows)
        print()


def print_comparison(table: Table[Any]) -> None:
    columns = [column for column in table.columns if not column.detail]
    rows = [[row.name, row.dots, *(_text(row.cell(column.key)) for column in columns)] for row in table.rows]
    empty = {i for i in range(len(columns)) if not any(row[i + 2] for row in rows)}
    print_table(
        table.title,
        ["", "seeds", *(column.title for i, column in enumerate(columns) if i not in empty)],
        [[*row[:2], *(cell for i, cell in enumerate(row[2:]) if i not in empty)] for row in rows],
        caption=table.caption or None,
    )
    for line in (*table.findings, f"{table.heading}."):
        print(f"  {line}")
    print()


def _text(cell: Any) -> str:
    return " ".join(filter(None, (cell.text, cell.verdict)))


def budget_note(result: ComparisonResult[Any], config: ComparisonConfig) -> str:
    if not any(table.comparisons for table in result.tables):
        return "Nothing to decide: no table has two variants that may be ranked."
    if not result.undecided:
        return "Decided: every comparison of variants that may be ranked."
    if result.interrupted:
        return "Interrupted before everything was decided."
    return f"The budget of {config.max_seeds} seeds, or of minutes, is spent: {result.undecided} comparisons are open."
