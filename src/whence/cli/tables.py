"""Tables of a comparison on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from whence.arena.table import Row, Table, overall
from whence.cli.output import duration, percent, print_table


def print_tables(tables: Sequence[Table]) -> None:
    for table in tables:
        _print_one(table)
    across = overall(tables)
    if across:
        rows = [[encoding, f"{value:.3f}", str(count)] for encoding, (value, count) in across.items()]
        print(
            "across tasks, within training: (accuracy − floor)/(1 − floor), interquartile mean; below 0: worse than "
            "the best shortcut; not a ranking"
        )
        print_table("", ["encoding", "score", "runs"], rows)
        print()


def _print_one(table: Table) -> None:
    run = table.run
    title = f"{table.title} · train ≤ {run.train_length}"
    if run.test_lengths:
        first = run.train_length + 1 if run.task.build().dense else min(run.test_lengths)
        title += f" · beyond at {first}–{max(run.test_lengths)}"
    columns = ["encoding", "seeds", "ID %", "verdict", "OOD %", "verdict", "gap", "exact %", "solved", "time"]
    cells = [_cells(row) for row in table.rows]
    empty = {i for i in range(len(columns)) if i > 3 and not any(row[i] for row in cells)}
    print_table(
        title,
        [column for i, column in enumerate(columns) if i not in empty],
        [[cell for i, cell in enumerate(row) if i not in empty] for row in cells],
        caption=table.floors(),
    )
    for line in [*table.findings, table.heading]:
        print(f"  {line}")
    print()


def _cells(row: Row) -> list[str]:
    lost = len(row.failed) + len(row.damaged)
    dots = "●" * row.finished + "✕" * lost + "○" * (len(row.runs) - row.finished - lost)
    within, beyond = row.within, row.shown_beyond
    exact = within.exact_share if within else None
    return [
        row.name,
        dots,
        " ".join(within.percents) if within else "",
        row.verdict,
        " ".join(beyond.percents) if beyond else "",
        row.beyond_verdict,
        "" if row.gap is None else percent(row.gap),
        "" if exact is None else percent(exact),
        f"{within.solved}/{row.finished}" if within else "",
        duration(row.seconds),
    ]
