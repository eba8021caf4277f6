"""`whence arena`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from whence.cli.options import Engine, parse
from whence.cli.output import duration, percent, print_json, print_table

if TYPE_CHECKING:
    from whence.arena.run import Lengths
    from whence.arena.table import Row, Score

DESCRIPTION = """Compare positional encodings on tasks, within the training length and beyond it.

  whence arena --tasks k_back_recall --encodings rope alibi none --seeds 3
  whence arena --tasks long_range_match --encodings rope randomized+rope:base=500 --pool last --steps 1000
  whence arena --mixer bimamba --encodings none sinusoidal learned
  whence arena --config comparison.yaml --seeds 6        (adds the seeds that are missing)

For one seed, every encoding sees the same data and starts from the same weights. A cell is first tested against
the best score that a shortcut without the skill would reach; what cannot be told from it is at chance. Scores
beyond training are given only for encodings that mastered the task within it. Ctrl-C stops cleanly, and the same
command goes on."""


def main(arguments: list[str]) -> int:
    from whence.arena.spec import ArenaSpec
    from whence.arena.table import seeds_in, tabulate
    from whence.cli.sweep import leave, run_specs
    from whence.report.page import keep_spec, write_report
    from whence.stats import heading

    spec, engine = parse(ArenaSpec, Engine, arguments, prog="whence arena", description=DESCRIPTION)
    runs = spec.plan()
    if engine.print_spec:
        print_json(spec.model_dump(mode="json"))
        return 0
    store, outcome = run_specs(runs, engine)
    rows = tabulate(runs, store, outcome.ends)
    elsewhere = ["--store", engine.store] if engine.store else []
    again = shlex.join(["whence", "arena", "--config", str(keep_spec(spec, store)), *elsewhere])
    report = write_report(spec, rows, store, again) if any(row.finished for row in rows) else None
    if engine.json_:
        print_json(
            {
                "heading": heading(seeds_in(rows)),
                "rows": [row.to_json() for row in rows],
                "runs": outcome.ends,
                "report": str(report) if report else None,
                "again": again,
            }
        )
        return leave(outcome)
    for task in dict.fromkeys(row.task for row in rows):
        _print_task(f"{task} · {spec.model.mixer}", [row for row in rows if row.task == task], spec.lengths)
    print(heading(seeds_in(rows)))
    if report:
        print(f"report  {report}")
    if not outcome.interrupted:
        print(f"again   {again}")
    return leave(outcome)


def _print_task(what: str, rows: list[Row], lengths: Lengths) -> None:
    from whence.arena.table import floors_of

    title = f"{what} · train ≤ {lengths.train_length}"
    if lengths.test_lengths:
        title += f" · scored beyond at {lengths.train_length + 1}–{max(lengths.test_lengths)}"
    columns = ["encoding", "runs", "ID %", "verdict", "OOD %", "verdict", "time"]
    print_table(title, columns, [_cells(row) for row in rows], caption=floors_of(rows))
    print()


def _cells(row: Row) -> list[str]:
    dots = "●" * row.finished + "✕" * len(row.failed) + "○" * (len(row.runs) - row.finished - len(row.failed))
    within = _scored(row.within) if row.within else ""
    beyond = _scored(row.beyond) if row.beyond and row.mastered else ""
    return [row.encoding, dots, within, row.verdict, beyond, row.beyond_verdict, duration(row.seconds)]


def _scored(score: Score) -> str:
    low, high = score.interval
    return f"{percent(score.accuracy)} [{percent(low)}, {percent(high)}]"
