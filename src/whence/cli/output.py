"""Results on standard output, everything else on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

stderr = Console(stderr=True)


@contextmanager
def telling(first: str) -> Iterator[Callable[[str], None]]:
    """What is being done: in one place of a terminal, elsewhere line by line, once what was asked for is possible."""
    if not stderr.is_terminal:
        yield lambda words: stderr.print(words, markup=False, highlight=False, soft_wrap=True)
        return
    with stderr.status(f"{first} …") as status:
        yield lambda words: status.update(f"{words} …")


def print_json(document: Any) -> None:
    """The one JSON document of a `--json` call."""
    print(json.dumps(document, indent=1, default=str), flush=True)


def print_table(title: str, columns: list[str], rows: list[list[str]], *, caption: str | None = None) -> None:
    """As wide as the terminal; when piped, as wide as the content needs."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=min(180, max(80, *(sum(map(len, row)) + 4 * len(row) for row in [columns, *rows]))))
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_lines(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table of one line per row, for thousands of rows: no wrapping, no measuring of the terminal."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [columns, *rows]]
    print("\n".join([title, *map(str.rstrip, lines)]))
