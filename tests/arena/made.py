"""Finished runs and rows written by hand, so that the numbers behind a table are known."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.conftest import TINY, merged
from whence import stats
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA, Arena, ArenaTable
from whence.arena.metrics import PARTS, ArenaMetrics, EvalCounts, pool
from whence.arena.run import ArenaRun
from whence.arena.score import Score, judge
from whence.experiments import tabulate as experiments_tabulate
from whence.experiments.comparison import plan_comparison, runs_of
from whence.experiments.comparison import tables_of as tables_of_comparison
from whence.experiments.results import RunResult
from whence.experiments.table import Criterion, PlannedTable, Row, Table
from whence.store.files import ChainWriter, write_sealed
from whence.store.runs import Store

TASK = TINY["task"]


def spec(*encodings: str, **changes: Any) -> ArenaConfig:
    """A comparison of tiny models on one task, unless told otherwise."""
    usual = {
        "tasks": [TASK],
        "encodings": list(encodings) or ["rope", "alibi"],
        "seeds": 2,
        "model": {"d_model": 16, "heads": 2, "layers": 1},
        "lengths": TINY["lengths"],
        "training": {**TINY["training"], "steps": 4, "evaluations": 2},
    }
    return ArenaConfig.read(merged(usual, changes))


def planned(comparison: ArenaConfig, store: Store | None = None) -> list[ArenaRun]:
    """Every run, those of tuning first."""
    place = store or Store("nowhere")
    return [*comparison.tuning_runs(), *runs_of(plan_comparison(ARENA, comparison, place))]


def tabulate(
    runs: Sequence[ArenaRun], store: Store, ends: Mapping[str, str] = {}, **options: Any
) -> list[Table[ArenaRun]]:
    """Tables of these runs, all pairs compared."""
    return experiments_tabulate.tabulate(ARENA, ARENA.tables_of_runs(runs), store, ends, **options)


def tables_of(comparison: ArenaConfig, store: Store) -> list[Table[ArenaRun]]:
    return tables_of_comparison(ARENA, comparison, store)


def reported(comparison: ArenaConfig, store: Store) -> list[ArenaRun]:
    """The runs of its tables, with what tuning chose."""
    return runs_of(plan_comparison(ARENA, comparison, store))


def one(tables: list[Table[ArenaRun]]) -> Table[ArenaRun]:
    (table,) = tables
    return table


def pair_of(table: Table[ArenaRun], part: str, a: str, b: str) -> stats.Comparison:
    """The comparison of two encodings."""
    (found,) = [c for c in table.pairs(part) if (c.a, c.b) == (a, b)]
    return found


def names_of(comparisons: Sequence[stats.Comparison]) -> list[tuple[str, str]]:
    return [(c.a, c.b) for c in comparisons]


def counts(accuracy: float, sequences: int = 200, each: int = 7, exact: float = 0.0) -> EvalCounts:
    """An evaluation in which every sequence has as many right answers as any other, give or take one."""
    total = sequences * each
    correct = round(accuracy * total)
    share, more = divmod(correct, sequences)
    squares = more * (share + 1) ** 2 + (sequences - more) * share**2
    return EvalCounts(
        correct=correct,
        total=total,
        sequences=sequences,
        squares=squares,
        exact=round(exact * sequences),
        loss=1 - accuracy,
    )


def metrics(
    run: ArenaRun,
    within: float,
    beyond: float | None = None,
    validation: float | None = None,
    exact: float = 0.0,
    seen: int = 0,
) -> ArenaMetrics:
    each = 1 if run.task.build().per == "sequence" else 7
    inside = counts(within, each=each)
    outside = {n: counts(within if beyond is None else beyond, each=each, exact=exact) for n in run.test_lengths}
    parts = {"id": inside} | ({"ood": pool(list(outside.values()))} if outside else {})
    return ArenaMetrics(
        headline={name: of.accuracy for name, of in parts.items()},
        **parts,
        lengths={run.train_length: inside, **outside},
        validation=counts(within if validation is None else validation, each=each),
        seen_in_training=seen,
    )


def finish(store: Store, run: ArenaRun, *scores: Any, **more: Any) -> None:
    """The run as if it had been trained: `finish(store, run, within, beyond, validation=…, exact=…)`."""
    found = metrics(run, *scores, **more).model_dump(mode="json")
    folder = store.folder(run.id).path
    folder.mkdir(parents=True)
    write_sealed(
        folder / "config.json", {"config": run.document(), "versions": run.versions(), "streams": {}}, durable=False
    )
    status = {"id": run.id, "state": "finished", "seed": run.seed, "seconds": 2.0, "tokens": 5000, "latest": found}
    write_sealed(folder / "status.json", status, durable=False)
    records = ChainWriter(folder / "metrics.jsonl")
    for step in (0, run.training.steps):
        records.append({"step": step, "metrics": found})
    records.sync()
    records.close()


def fail(store: Store, run: ArenaRun, message: str) -> None:
    folder = store.folder(run.id).path
    folder.mkdir(parents=True)
    write_sealed(
        folder / "config.json", {"config": run.document(), "versions": run.versions(), "streams": {}}, durable=False
    )
    status = {"id": run.id, "state": "failed", "error": {"kind": "non_finite", "message": message}}
    write_sealed(folder / "status.json", status, durable=False)


def finish_all(store: Store, runs: Sequence[ArenaRun], by_encoding: Mapping[str, Sequence[Any]]) -> None:
    """By encoding, for every seed in turn: within, or (within, beyond)."""
    for run in runs:
        scores = by_encoding[run.model.position_label][run.seed - runs[0].seed]
        finish(store, run, *(scores if isinstance(scores, tuple) else (scores,)))


def row(
    encoding: str,
    within: Sequence[float] | None,
    beyond: Sequence[float] | None = None,
    *,
    baseline: float = 0.25,
    effective: float = 500,
    seeds: Sequence[int] | None = None,
    failed: int = 0,
) -> Row[ArenaRun]:
    """A row of a table without any files behind it."""
    numbers = list(range(len(within or ())) if seeds is None else seeds)
    cells = {
        part: score(dict(zip(numbers, values, strict=True)), baseline, effective)
        for part, values in (("id", within), ("ood", beyond))
        if values is not None
    }
    runs = [ArenaRun.read(merged(TINY, {"seed": s, "model": {"encoding": encoding}})) for s in numbers]
    finished = [
        RunResult(run, "finished", metrics=metrics(run, value).model_dump(), seconds=1.0, tokens=10)
        for run, value in zip(runs, within or (), strict=True)
    ]
    lost = [ArenaRun.read(merged(TINY, {"seed": 1000 + i, "model": {"encoding": encoding}})) for i in range(failed)]
    broken = [RunResult(run, "failed", "it <b>broke</b>", diverged=True) for run in lost]
    return Row(encoding, (*finished, *broken), cells)


def table_of(rows: Sequence[Row[ArenaRun]], design: stats.TestDesign = "fixed") -> Table[ArenaRun]:
    """A table of rows without any files behind them, all pairs compared."""

    class Made(Arena):
        def rows(
            self, planned: PlannedTable[ArenaRun], found: Sequence[Row[ArenaRun]], store: Store
        ) -> list[Row[ArenaRun]]:
            return judge(rows)

    variants = {row.name: [result.run for result in row.results] for row in rows}
    criteria = [Criterion(stats.ACCURACY, part, part) for part in PARTS if any(part in row.cells for row in rows)]
    planned = ArenaTable("made", variants, stats.all_pairs(variants), criteria)
    with tempfile.TemporaryDirectory() as folder:
        return one(experiments_tabulate.tabulate(Made(), [planned], Store(folder), design=design))


def score(per_seed: Mapping[int, float], baseline: float = 0.25, effective: float = 500) -> Score:
    values = list(per_seed.values())
    interval = stats.over_seeds(values, effective)
    baselines = {"majority": baseline}
    return Score("…", per_seed, interval, effective=effective, baselines=baselines, loss=1.0)
