"""`whence arena`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pydantic import Field

from whence.cli.options import Engine, elsewhere, parse
from whence.cli.output import print_json, stderr
from whence.errors import UserError

if TYPE_CHECKING:
    from whence.arena.spec import ArenaSpec
    from whence.arena.table import Table
    from whence.runs.engines.local import Outcome

DESCRIPTION = """Compare positional encodings on tasks, within the training length and beyond it.

  whence arena                                           four tasks, four encodings, three seeds: a first look
  whence arena --tasks k_back_recall --encodings rope alibi none --seeds 7
  whence arena --preset source_k_back                    (see 'whence presets')
  whence arena --tasks long_range_match --encodings rope randomized+rope:base=500 --steps 1000
  whence arena --mixer bimamba
  whence arena --tasks k_back_recall --sweep "d_model=64,128;k=1,3,7" --workers 2
  whence arena --tasks copy --tune lr=0.001,0.003        (for each encoding, chosen on seeds that are not reported)
  whence arena --tasks copy --against rope --seeds 8     (compare with one encoding: fewer comparisons, fewer seeds)
  whence arena --tasks copy --encodings rope t5 --until-decided --max-seeds 20
  whence arena --resume                                  (the latest comparison of this store)

For one seed, every encoding sees the same data and starts from the same weights. A cell is first tested against
the best score that a shortcut without the skill would reach; what cannot be told from it is at chance and never
ranked. Scores beyond training are given only for encodings that mastered the task within it. Ctrl-C stops cleanly,
and the same command goes on."""


class Comparing(Engine):
    """Where and how to run: none of this changes what a run is."""

    resume: bool = Field(
        default=False, description="go on with the latest comparison of the store (any comparison goes on by itself)"
    )
    minutes: float | None = Field(
        default=None, gt=0, description="add no more seeds to --until-decided after this long"
    )


def main(arguments: list[str]) -> int:
    from whence.arena.decide import settle
    from whence.arena.kept import KIND, PRESETS
    from whence.arena.spec import ArenaSpec
    from whence.cli.sweep import leave, run_specs
    from whence.cli.tables import print_tables
    from whence.device import resolve_device
    from whence.report.page import Page
    from whence.runs.kept import kept_path
    from whence.runs.store import Store
    from whence.stats import plan_note

    arguments = _latest_if_resumed(arguments)
    spec, engine = parse(ArenaSpec, Comparing, arguments, prog="whence arena", description=DESCRIPTION, presets=PRESETS)
    if engine.minutes is not None and not spec.until_decided:
        raise UserError("minutes: only --until-decided adds seeds. Allowed: both, or none.", field="minutes")
    if engine.print_spec:
        spec.plan()
        print_json(spec.model_dump(mode="json"))
        return 0
    store = Store(engine.store)
    resolve_device(engine.device)
    config = kept_path(KIND, spec, store)
    again = shlex.join(["whence", "arena", "--config", str(config), *elsewhere(store)])
    notes = [plan_note(spec.seeds, spec.comparisons(), family=spec.family, design=spec.inference.design)]
    tables, outcome = settle(
        spec,
        store,
        lambda runs: run_specs(runs, engine, notes.pop() if notes else "")[1],
        minutes=engine.minutes,
        tell=lambda words: stderr.print(words),
    )
    report = None
    if any(row.finished for table in tables for row in table.rows):
        with stderr.status("drawing the report"):
            report = Page.of(tables, spec.model_dump(mode="json"), again, store, config.stem).write(store.reports)
    if engine.json_:
        print_json(
            {
                "tables": [table.to_json() for table in tables],
                "until_decided": _budget(spec, tables, outcome) if spec.until_decided else None,
                "runs": outcome.ends,
                "report": str(report) if report else None,
                "again": again,
            }
        )
        return leave(outcome)
    print_tables(tables)
    if spec.until_decided:
        print(_budget(spec, tables, outcome))
    if report:
        print(f"report  {report}")
    if not outcome.interrupted:
        print(f"again   {again}")
    return leave(outcome)


def _latest_if_resumed(arguments: list[str]) -> list[str]:
    """`--resume` without a comparison of its own means the latest one; flags win over it, as over any config."""
    from whence.arena.kept import kept, read
    from whence.runs.store import Store

    named = [a.partition("=")[0].replace("_", "-") for a in arguments if a.startswith("--")]
    if "--resume" not in named:
        return arguments
    if own := {"--config", "--preset", "--tasks"} & set(named):
        stderr.print(f"{min(own)} names the comparison to go on with; --resume adds nothing", highlight=False)
        return arguments
    place = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "--store"), None)
    place = next((a.removeprefix("--store=") for a in arguments if a.startswith("--store=")), place)
    for path in kept(Store(place)):
        try:
            read(path)
        except UserError as damage:
            stderr.print(f"left out: {damage}", markup=False, highlight=False, soft_wrap=True)
            continue
        stderr.print(f"going on with {path.stem}", highlight=False)
        return ["--config", str(path), *arguments]
    raise UserError(f"resume: {Store(place).root} keeps no comparison yet. See 'whence arena --help'.", field="resume")


def _budget(spec: ArenaSpec, tables: list[Table], outcome: Outcome) -> str:
    if not any(pairs for table in tables for pairs in table.comparisons.values()):
        return "nothing to decide: in no table may two encodings be ranked"
    if all(table.decided for table in tables):
        return "decided: every comparison of encodings that may be ranked"
    if outcome.interrupted:
        return "interrupted before everything was decided"
    left = sum(not c.decided for table in tables for pairs in table.comparisons.values() for c in pairs.values())
    return f"the budget is spent ({spec.max_seeds} seeds, or the minutes): {left} comparisons have no verdict yet"
