"""Seeds until every comparison is decided, or the budget is spent."""

from __future__ import annotations

from collections.abc import Sequence

from whence.arena.run import Run
from whence.arena.spec import ArenaSpec
from whence.arena.table import Table, setting_of


def more_runs(spec: ArenaSpec, tables: Sequence[Table], seed: int) -> list[Run]:
    """One more paired seed for every encoding that a comparison still waits for; none when all is decided.

    Encodings at chance ask for nothing: they are not ranked, and more seeds would not teach them the task.
    """
    waiting = {
        (table.setting, encoding)
        for table in tables
        for pairs in table.comparisons.values()
        for comparison in pairs.values()
        if not comparison.decided
        for encoding in (comparison.a, comparison.b)
    }
    if not waiting:
        return []
    runs = spec.model_copy(update={"seeds": 1, "first_seed": seed}).plan()
    return [run for run in runs if (setting_of(run, spec.tuned), run.model.contender) in waiting]
