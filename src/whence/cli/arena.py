"""`whence arena`."""

from __future__ import annotations

import json
import shlex

from whence.cli.options import Engine, parse
from whence.cli.output import duration, percent, print_json, print_table

DESCRIPTION = """Compare positional encodings on tasks, within the training length and beyond it.

  whence arena --tasks k_back_recall --encodings rope alibi none --seeds 3
  whence arena --tasks long_range_match --encodings rope randomized+rope:base=500 --pool last --steps 1000
  whence arena --config comparison.yaml --seeds 6        (adds the seeds that are missing)

For one seed, every encoding sees the same data and starts from the same weights. A cell is first tested against
the best score that a shortcut without the skill would reach; what cannot be told from it is at chance. Scores
beyond training are given only for encodings that mastered the task within it. Ctrl-C stops cleanly, and the same
command goes on."""


def main(arguments: list[str]) -> int:
    from whence.arena.spec import ArenaSpec
    from whence.arena.table import tabulate
    from whence.cli.sweep import exit_code, run_specs
    from whence.models.sequence import count_parameters
    from whence.report.page import write_report
    from whence.stats import heading

    spec, engine = parse(ArenaSpec, Engine, arguments, prog="whence arena", description=DESCRIPTION)
    runs = spec.plan()
    if engine.print_spec:
        print_json(spec.model_dump(mode="json"))
        return 0
    store, outcome = run_specs(runs, engine, max(count_parameters(run.build_model("meta")) for run in runs))
    rows = tabulate(runs, store)
    elsewhere = ["--store", engine.store] if engine.store else []
    kept = _keep_spec(spec.model_dump(mode="json"), store)
    again = shlex.join(["whence", "arena", "--config", str(kept), *elsewhere])
    report = write_report(spec, rows, store, again) if any(row.finished for row in rows) else None
    if engine.json_:
        print_json(
            {
                "heading": heading(spec.seeds),
                "rows": [row.to_json() for row in rows],
                "runs": outcome.ends,
                "report": str(report) if report else None,
                "again": again,
            }
        )
        return exit_code(outcome)
    for task in dict.fromkeys(row.task for row in rows):
        _print_task(task, [row for row in rows if row.task == task], spec)
    print(heading(spec.seeds))
    if report:
        print(f"report  {report}")
    print(f"again   {again}")
    return exit_code(outcome)


def _print_task(task, rows, spec) -> None:
    longest = max((spec.lengths.train_length, *spec.lengths.test_lengths))
    title = f"{task} · train ≤ {spec.lengths.train_length} · scored beyond at {spec.lengths.train_length + 1}–{longest}"
    floor = next((f"floor: {row.within.floor_name}, {percent(row.within.floor)} %" for row in rows if row.within), "")
    print_table(
        title, ["encoding", "runs", "verdict", "ID %", "OOD %", "time"], [_cells(row) for row in rows], caption=floor
    )
    print()


def _cells(row) -> list[str]:
    dots = "●" * row.finished + "✕" * len(row.failed) + "○" * (len(row.runs) - row.finished - len(row.failed))
    if row.within is None:
        return [row.encoding, dots, "failed" if row.failed else "not run", "", "", ""]
    beyond = "" if row.beyond is None else _scored(row.beyond) if row.mastered else "not learned"
    return [row.encoding, dots, row.within.verdict, _scored(row.within), beyond, duration(row.seconds)]


def _scored(score) -> str:
    low, high = score.interval
    return f"{percent(score.accuracy)} [{percent(low)}, {percent(high)}]"


def _keep_spec(document, store):
    """The comparison as a config file beside its report, so that one short command regenerates it."""
    from whence.runs.files import addressed_name, write_atomically

    data = (json.dumps(document, indent=1) + "\n").encode()
    path = store.reports / addressed_name("arena", data, ".json")
    write_atomically(path, data)
    return path
