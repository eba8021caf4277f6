"""Comparisons of positional encodings on tasks, in distribution and out of distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from whence import stats
from whence.arena.attention import LONGEST_MAP, AttentionMaps, AttentionRequest, attention_measurement
from whence.arena.config import ArenaConfig
from whence.arena.findings import conclusion, findings
from whence.arena.metrics import PARTS
from whence.arena.page import attention_of, figures
from whence.arena.run import ArenaRun
from whence.arena.score import id_score, judge, mastered, ood_score, score_of
from whence.arena.tuning import (
    CONFIG_GROUPS,
    ArenaTable,
    Key,
    Trial,
    choose,
    setting_of,
    shared_fields,
    text_of,
    trials,
)
from whence.errors import UserError
from whence.experiments.instrument import Instrument, Measurement, Summary
from whence.experiments.results import final_metrics, read_results
from whence.experiments.saved import Presets
from whence.experiments.table import Cell, Column, Criterion, PlannedTable, Row, Table
from whence.report.figures import line_style
from whence.store.files import canonical
from whence.store.runs import Store

PRESETS = Presets("whence.arena", ArenaConfig)


class Arena(Instrument[ArenaConfig, ArenaRun]):
    name = "arena"
    config = ArenaConfig
    run = ArenaRun
    presets = PRESETS

    def title(self, config: ArenaConfig) -> str:
        tasks, encodings = (", ".join(map(str, of)) for of in (config.tasks, config.encodings))
        varied = "".join(f", {name} {grid}" for name, grid in (("sweep", config.sweep), ("tune", config.tune)) if grid)
        return f"{tasks}: {encodings}, {stats.count(config.seeds, 'seed')}{varied}"

    def stages(self, config: ArenaConfig, store: Store) -> Iterator[Sequence[ArenaRun]]:
        if config.tune:
            yield config.tuning_runs()

    def plan(self, config: ArenaConfig, store: Store) -> list[PlannedTable[ArenaRun]]:
        tried = trials(config.tuning_runs(), store, config.tuned) if config.tune else {}
        runs = config.reported_runs(choose(tried))
        every = [run.id for run in (*config.tuning_runs(), *runs)]
        if len(set(every)) != len(every):
            name = "tasks" if len(set(map(str, config.tasks))) < len(config.tasks) else "encodings"
            raise UserError(f"{name}: an entry is listed twice. Allowed: each once.")
        return self.tables_of_runs(runs, config.tuned, tried, against=config.against)

    def tables_of_runs(
        self,
        runs: Sequence[ArenaRun],
        tuned: tuple[str, ...] = (),
        tried: Mapping[Key, Sequence[Trial]] = {},
        *,
        against: str = "",
    ) -> list[PlannedTable[ArenaRun]]:
        """One table for runs that differ only in seed, encoding and tuned fields."""
        groups: dict[str, dict[str, list[ArenaRun]]] = {}
        for run in runs:
            groups.setdefault(setting_of(run, tuned), {}).setdefault(run.model.position_label, []).append(run)
        first = [next(iter(variants.values()))[0] for variants in groups.values()]
        tables: list[PlannedTable[ArenaRun]] = []
        for run, title, (setting, variants) in zip(first, _titles(first, tuned), groups.items(), strict=True):
            own = {encoding: tried.get((setting, encoding), ()) for encoding in variants} if tuned else {}
            pairs = stats.against(against, variants) if against in variants else stats.all_pairs(variants)
            criteria = [Criterion(stats.ACCURACY, "id", part="id")]
            if run.test_lengths:
                criteria.append(Criterion(stats.ACCURACY, "ood", part="ood", look=f"ood {run.test_lengths}"))
            tables.append(ArenaTable(title, variants, pairs, criteria, tuned=tuned, tried=own))
        return tables

    def rows(self, planned: PlannedTable[ArenaRun], rows: Sequence[Row[ArenaRun]], store: Store) -> list[Row[ArenaRun]]:
        scores = [{part: score_of(row.finished, part) for part in PARTS} for row in rows]
        cells_of_rows = [{part: score for part, score in of.items() if score is not None} for of in scores]
        judged = judge([replace(row, cells=cells) for row, cells in zip(rows, cells_of_rows, strict=True)])
        return [replace(row, cells=_cells(planned, row)) for row in judged]

    def columns(self, planned: PlannedTable[ArenaRun], rows: Sequence[Row[ArenaRun]]) -> list[Column]:
        return [
            Column("chosen", "tuned settings"),
            Column("id", "ID accuracy (%)", span=(0.0, 1.0)),
            Column("ood", "OOD accuracy (%)", span=(0.0, 1.0)),
            Column("gap", "ID − OOD (points)"),
            Column("exact", "exact match (%)"),
            Column("solved", "seeds solved"),
            Column("loss", "ID loss", detail=True),
            Column("cost", "training time", detail=True),
        ]

    def comparable(self, planned: PlannedTable[ArenaRun], row: Row[ArenaRun], criterion: Criterion) -> bool:
        """Cells at chance are never ranked, OOD cells need 95 % ID, and tasks with a known shortcut rank nothing."""
        if not planned.run.task.build().ranked or (criterion.part == "ood" and not mastered(row)):
            return False
        return bool(stats.rankable({row.name: row.cell(criterion.column).verdict}))

    def measurements(
        self, planned: PlannedTable[ArenaRun], store: Store
    ) -> list[Measurement[AttentionRequest, AttentionMaps]]:
        """Attention maps of the first finished run of every encoding."""
        results = [read_results(runs, store) for runs in planned.variants.values()]
        finished = [next((result.run for result in of if result.state == "finished"), None) for of in results]
        return [
            attention_measurement(run, store)
            for run in finished
            if run and run.task.build().tokens(run.train_length) <= LONGEST_MAP
        ]

    def caption(self, table: Table[ArenaRun]) -> str:
        run = table.planned.run
        ood_lengths = ", ".join(map(str, run.test_lengths))
        where = f"Training length up to {run.train_length}" + (f"; OOD at {ood_lengths}" if ood_lengths else "")
        parts = [("ID", map(id_score, table.rows)), ("OOD", map(ood_score, table.rows))]
        known = [(name, score) for name, scores in parts if (score := next(filter(None, scores), None))]
        baselines = "; ".join(f"{name} {100 * score.baseline:.1f} % ({score.baseline_name})" for name, score in known)
        return f"{where}. Shortcut baseline: {baselines}" if baselines else where

    def conclusion(self, table: Table[ArenaRun]) -> str:
        return conclusion(table, super().conclusion(table))

    def findings(self, table: Table[ArenaRun]) -> list[str]:
        return findings(table)

    def style(self, table: Table[ArenaRun], name: str) -> Mapping[str, str]:
        return line_style(name)

    def figures(self, table: Table[ArenaRun]) -> Mapping[str, go.Figure]:
        return figures(table)

    def sections(self, tables: Sequence[Table[ArenaRun]], store: Store) -> Mapping[str, Sequence[str]]:
        return {table.title: attention_of(table, store) for table in tables}

    def evidence(self, table: Table[ArenaRun]) -> list[str]:
        return _every_baseline(table)

    def summary(self, tables: Sequence[Table[ArenaRun]]) -> Summary | None:
        note = (
            "Interquartile mean over tasks and seeds of the normalized ID accuracy, (accuracy − baseline) / "
            "(1 − baseline): 0 is the shortcut baseline, 1 is 100 %. Descriptive; the differences are not tested."
        )
        rows = [[encoding, f"{value:.3f}", str(count)] for encoding, (value, count) in overall(tables).items()]
        return Summary("Across tasks", note, ["encoding", "interquartile mean", "runs"], rows) if rows else None

    def records(self, table: Table[ArenaRun]) -> Iterator[dict[str, Any]]:
        """One record per run and length."""
        run = table.planned.run
        baselines = {n: run.stated_baseline(n).accuracy for n in run.lengths_scored}
        for row in table.rows:
            for result in row.finished:
                metrics = final_metrics(result)
                for length, baseline in baselines.items():
                    counts = metrics.lengths[length]
                    yield {
                        "table": table.title,
                        "task": str(run.task),
                        "mixer": str(run.model.mixer),
                        "encoding": row.name,
                        "seed": result.run.seed,
                        "length": length,
                        "part": "id" if length == run.train_length else "ood",
                        "correct": counts.correct,
                        "total": counts.total,
                        "accuracy": counts.accuracy,
                        "baseline": baseline,
                        "exact": counts.exact / counts.sequences,
                        "loss": counts.loss,
                        "run": result.run.id,
                        "seconds": result.seconds,
                        "tokens": result.tokens,
                    }


ARENA = Arena()


def _titles(runs: Sequence[ArenaRun], tuned: Sequence[str]) -> list[str]:
    """The task, the mixer, and the other fields that differ between the tables."""
    shared = [shared_fields(run, tuned) for run in runs]
    flat = [{f"{group}.{key}": v for group in CONFIG_GROUPS for key, v in of[group].items()} for of in shared]
    tasks = {str(run.task) for run in runs}
    varying = [
        key
        for key in (flat[0] if flat else ())
        # lengths that follow from the task are not named
        if any(len({canonical(f[key]) for f, r in zip(flat, runs, strict=True) if str(r.task) == t}) > 1 for t in tasks)
    ]
    settings = [[f"{key.split('.')[1]}={of[key]}" for key in varying if key != "model.mixer"] for of in flat]
    return [" · ".join([str(run.task), str(run.model.mixer), *of]) for run, of in zip(runs, settings, strict=True)]


def _cells(planned: PlannedTable[ArenaRun], row: Row[ArenaRun]) -> dict[str, Cell]:
    cells = dict(row.cells)
    if isinstance(planned, ArenaTable) and planned.tuned:
        cells["chosen"] = Cell(text_of(planned.chosen(row.name)))
    score, ood = id_score(row), ood_score(row)
    if score is None:
        reasons = "; ".join(sorted({*row.failed.values(), *row.damaged.values()}))
        return {**cells, "id": Cell(reasons, verdict=row.state)}
    if ood is not None and mastered(row):
        gap = {seed: accuracy - ood.per_seed[seed] for seed, accuracy in score.per_seed.items()}
        cells["gap"] = Cell(f"{100 * (score.accuracy - ood.accuracy):.1f}", gap)
    if score.exact_share is not None:
        cells["exact"] = Cell(f"{100 * score.exact_share:.1f}")
    solved = sum(accuracy >= stats.SOLVED for accuracy in score.per_seed.values())
    cells["solved"] = Cell(f"{solved} of {len(row.finished)}")
    cells["loss"] = Cell(f"{score.loss:.3f}")
    tokens = sum(result.tokens for result in row.finished)
    cells["cost"] = Cell(f"{row.seconds:.0f} s · {tokens / row.seconds / 1000:.1f}k tokens/s" if row.seconds else "")
    return cells


def _every_baseline(table: Table[ArenaRun]) -> list[str]:
    """ID accuracy of all shortcuts, the highest first."""
    score = next(filter(None, map(id_score, table.rows)), None)
    if score is None:
        return []
    ordered = sorted(score.baselines.items(), key=lambda item: -item[1])
    listed = "; ".join(f"{name} {100 * value:.1f} %" for name, value in ordered)
    return [Markup("<p class=note>ID accuracy of every shortcut: {}.</p>").format(listed)]


def overall(tables: Sequence[Table[ArenaRun]]) -> dict[str, tuple[float, int]]:
    """For every encoding that is in all tables: interquartile mean of its normalized scores, and number of scores.

    The normalized score is (accuracy − baseline)/(1 − baseline) of every seed and task: 0 is the shortcut baseline.
    """
    if len({str(table.planned.run.task) for table in tables}) < 2:
        return {}
    common = set.intersection(*({row.name for row in table.rows if id_score(row)} for table in tables))
    averages: dict[str, tuple[float, int]] = {}
    for encoding in (row.name for row in tables[0].rows if row.name in common):
        scores = [score for table in tables if (score := id_score(table.row(encoding))) and score.baseline < 1]
        values = [stats.normalised(a, score.baseline) for score in scores for a in score.per_seed.values()]
        if values:
            averages[encoding] = stats.iqm(values), len(values)
    return averages
