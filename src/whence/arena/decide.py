"""From a spec to its tables: run what it plans and, if asked, seed after seed until all comparisons are decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from whence import stats
from whence.arena.kept import KIND, chosen, stored_runs, tables_of
from whence.arena.run import Run
from whence.arena.spec import ArenaSpec
from whence.arena.table import Table
from whence.arena.tuning import setting_of
from whence.runs.engines.local import Outcome
from whence.runs.kept import keep
from whence.runs.store import Store


def settle(
    spec: ArenaSpec,
    store: Store,
    run: Callable[[Sequence[Run]], Outcome],
    *,
    minutes: float | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> tuple[list[Table], Outcome]:
    """`run` runs what it is given. After `minutes`, no seeds are added any more.

    What cannot be is refused before anything is written; then the store keeps the spec.
    """
    started = time.monotonic()
    spec.plan()
    store.prepare()
    keep(KIND, spec, store)
    if spec.until_decided:  # fewer could not decide anything
        spec = spec.model_copy(update={"seeds": max(spec.seeds, min(stats.SEEDS_TO_DECIDE, spec.max_seeds))})
    ends: dict[str, str] = {}
    if tuning := spec.tuning_runs():
        ends |= run(tuning).ends
        if Outcome(ends).interrupted:
            return tables_of(spec, store, spec.reported_runs(), ends), Outcome(ends)
    runs = stored_runs(spec, store)  # seeds that were added earlier belong to it
    while True:
        ends |= run([planned for planned in runs if planned.id not in ends]).ends
        outcome = Outcome(ends)
        tables = tables_of(spec, store, runs, ends)
        seed = 1 + max(planned.seed for planned in runs)
        spent = seed - spec.first_seed >= spec.max_seeds
        late = minutes is not None and time.monotonic() - started > 60 * minutes
        if not spec.until_decided or outcome.interrupted or spent or late:
            return tables, outcome
        more = more_runs(spec, tables, store, seed)
        if not more:
            return tables, outcome
        tell(f"not decided yet: {len(more)} more runs, seed {seed}")
        runs += more


def more_runs(spec: ArenaSpec, tables: Sequence[Table], store: Store, seed: int) -> list[Run]:
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
    runs = spec.model_copy(update={"seeds": 1, "first_seed": seed}).reported_runs(chosen(spec, store))
    return [run for run in runs if (setting_of(run, spec.tuned), run.model.contender) in waiting]
