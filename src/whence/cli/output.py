"""What verbs print: results on standard output, everything else on standard error; and exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whence.formatting import visible

if TYPE_CHECKING:
    from whence.experiments.comparison import ComparisonResult
    from whence.experiments.table import Table as ComparisonTable

stderr = Console(stderr=True)
FAILED, INTERRUPTED = 1, 130
"""Exit codes beside 0 and 2: a run failed or a file is corrupt; Ctrl-C"""


def print_json(document: Any) -> None:
    """The one JSON document of a `--json` call."""
    print(json.dumps(document, indent=1, default=str), flush=True)


def print_text(text: str = "") -> None:
    """A result, as lines. Whoever has written part of it does not control the terminal."""
    print("\n".join(map(visible, text.split("\n"))), flush=True)


def print_table(title: str, columns: list[str], rows: list[list[str]], *, caption: str | None = None) -> None:
    """As wide as the terminal; when piped, as wide as the content needs."""
    columns, rows = list(map(visible, columns)), [list(map(visible, row)) for row in rows]
    console = Console()
    if not console.is_terminal:
        console = Console(width=min(180, max(80, *(sum(map(len, row)) + 4 * len(row) for row in [columns, *rows]))))
    table = Table(title_justify="left", caption_justify="left", box=None, pad_edge=False)
    table.title, table.caption = Text(visible(title)), Text(visible(caption)) if caption else None
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # not as text with markup
    console.print(table)


def print_lines(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table of one line per row, for thousands of rows: no wrapping, no measuring of the terminal."""
    columns, rows = list(map(visible, columns)), [list(map(visible, row)) for row in rows]
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [columns, *rows]]
    print_text("\n".join([visible(title), *map(str.rstrip, lines)]))


def print_note(text: str) -> None:
    """On standard error, as it is."""
    stderr.print("\n".join(map(visible, text.split("\n"))), markup=False, highlight=False, soft_wrap=True)


def print_result(result: ComparisonResult[Any]) -> None:
    """A comparison: its tables, what they come to, its page and its command."""
    for table in result.tables:
        print_comparison(table)
    if summary := result.summary:
        print_table(f"{summary.title}. {summary.note}", summary.columns, summary.rows)
        print_text()
    if result.config.until_decided:
        print_text(_budget_note(result))
    if result.report:
        print_text(f"report   {result.report}")
    if not result.interrupted:
        print_text(f"command  {result.command}")


def print_comparison(table: ComparisonTable[Any]) -> None:
    columns = [column for column in table.filled_columns if not column.detail]
    rows = [[row.name, row.dots, *(row.cell(column.key).words for column in columns)] for row in table.rows]
    titles = ["", "seeds", *(column.title for column in columns)]
    print_table(table.title, titles, rows, caption=table.caption or None)
    for line in (*table.findings, f"{table.heading}."):
        print_text(f"  {line}")
    print_text()


def _budget_note(result: ComparisonResult[Any]) -> str:
    if result.interrupted:
        return "Interrupted before everything was decided."
    if untested := [table.untested for table in result.tables if table.untested]:
        return f"{untested[0]}."
    if not any(table.comparisons for table in result.tables):
        return "Nothing to decide: no table has two variants that may be ranked."
    if not result.undecided:
        return "Decided: every comparison of variants that may be ranked."
    if "crashed" in result.ends.values():
        return "Not decided: a process died. The same command runs its model again."
    left = f"{result.undecided} comparison{'s' * (result.undecided != 1)}"
    return f"The budget of {result.config.max_seeds} seeds, or of minutes, is spent: {left} not decided."


def exit_code(ends: Mapping[str, str], command: str) -> int:
    """From how runs ended. After an interruption, print how to resume."""
    if "interrupted" in ends.values():
        print_note(f"Interrupted; nothing is lost. To resume:  {command}")
    codes = {"failed": FAILED, "crashed": FAILED, "busy": FAILED, "interrupted": INTERRUPTED}
    return max((codes.get(end, 0) for end in ends.values()), default=0)
