"""Output of verbs: results go to standard output, everything else to standard error. Also exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whence.formatting import counted, visible

if TYPE_CHECKING:
    from whence.experiments.comparison import ComparisonResult
    from whence.experiments.table import Table as ComparisonTable

stderr = Console(stderr=True)
FAILED, INTERRUPTED = 1, 130
"""Exit codes besides 0 and 2: a run failed or a file is corrupt; interrupted by Ctrl-C"""


def print_json(document: Any) -> None:
    """The single JSON document of a call with `--json`."""
    print(json.dumps(document, indent=1, default=str), flush=True)


def print_text(text: str = "") -> None:
    """Print lines of a result. Control characters are escaped, since parts may come from a stranger."""
    print("\n".join(map(visible, text.split("\n"))), flush=True)


def print_table(title: str, columns: list[str], rows: list[list[str]], *, caption: str | None = None) -> None:
    """A table as wide as the terminal; when piped, as wide as its content."""
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
    """A table with one line per row, without wrapping, for thousands of rows."""
    columns, rows = list(map(visible, columns)), [list(map(visible, row)) for row in rows]
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [columns, *rows]]
    print_text("\n".join([visible(title), *map(str.rstrip, lines)]))


def print_note(text: str) -> None:
    """Print to standard error, without wrapping or markup."""
    stderr.print("\n".join(map(visible, text.split("\n"))), markup=False, highlight=False, soft_wrap=True)


def print_result(result: ComparisonResult[Any]) -> None:
    """A comparison: its tables, its summary, its page and its command."""
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
    print_text(table.conclusion)
    print_table(table.title, titles, rows, caption=table.caption or None)
    for line in (*table.findings, f"{table.heading}."):
        print_text(f"  {line}")
    print_text()


def _budget_note(result: ComparisonResult[Any]) -> str:
    if result.interrupted:
        return "Interrupted before every comparison was decided."
    if untested := [table.untested for table in result.tables if table.untested]:
        return f"{untested[0]}."
    if not any(table.comparisons for table in result.tables):
        return "Nothing to decide: no table has two variants that can be ranked."
    if not result.undecided:
        return "Every comparison of variants that can be ranked is decided."
    if "crashed" in result.ends.values():
        return "Not decided: a worker process died. Repeat the command to run its model again."
    undecided = counted(result.undecided, "comparison")
    return f"{undecided} not decided within {result.config.max_seeds} seeds (--max-seeds) or --minutes."


def exit_code(ends: Mapping[str, str], command: str) -> int:
    """The exit code for these ends of runs. After an interruption, print how to resume."""
    if "interrupted" in ends.values():
        print_note(f"Interrupted; all progress is saved. To resume:  {command}")
    codes = {"failed": FAILED, "crashed": FAILED, "busy": FAILED, "interrupted": INTERRUPTED}
    return max((codes.get(end, 0) for end in ends.values()), default=0)
