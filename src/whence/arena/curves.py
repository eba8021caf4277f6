"""What a figure draws of a row: accuracy over steps and positions."""

from __future__ import annotations

from whence import stats
from whence.arena.run import ArenaRun
from whence.arena.score import Part
from whence.experiments.results import RunResult
from whence.experiments.table import Row
from whence.shortcuts.by_position import baseline_by_position


def accuracy_by_position(row: Row[ArenaRun], length: int) -> list[tuple[int, float]]:
    """Over seeds, for tasks with an answer per token: (first position of a bin, accuracy), where anything was asked."""
    bins = [result.metrics["lengths"][str(length)].get("positions") for result in row.finished]
    if not bins or bins[0] is None:
        return []
    width, total = bins[0]["width"], bins[0]["total"]
    correct = [sum(counts) for counts in zip(*(b["correct"] for b in bins), strict=True)]
    return [(i * width, c / (n * len(bins))) for i, (c, n) in enumerate(zip(correct, total, strict=True)) if n]


def learning_curve(result: RunResult[ArenaRun], part: Part = "id") -> list[tuple[int, float]]:
    headlines = ((e["step"], e["metrics"]["headline"]) for e in result.evaluations)
    return [(step, values[part]) for step, values in headlines if part in values]


def accuracy_by_length(row: Row[ArenaRun]) -> dict[int, list[float]]:
    """Per length, the accuracy of every seed."""
    if not row.finished:
        return {}
    run = row.finished[0].run
    counts = {n: [r.metrics["lengths"][str(n)] for r in row.finished] for n in (run.train_length, *run.test_lengths)}
    return {n: [c["correct"] / c["total"] for c in per_seed] for n, per_seed in counts.items()}


def learned_positions(row: Row[ArenaRun], length: int) -> tuple[list[int], list[int]] | None:
    """Of the positions asked about, those above their baseline and the others; None where positions are not single, or
    where the position alone gives the answer.

    Exact tests over all seeds, Holm-corrected over the positions.
    """
    bins = [result.metrics["lengths"][str(length)].get("positions") for result in row.finished]
    if not bins or bins[0] is None or bins[0]["width"] > 1:
        return None
    baselines = baseline_by_position(row.finished[0].run.task.build(), length)
    places = [place for place in baselines if bins[0]["total"][place]]
    if any(baselines[place] >= 1 for place in places):
        return None
    p_values = [
        stats.p_above(
            [b["correct"][at] / b["total"][at] for b in bins], sum(b["total"][at] for b in bins), baselines[at]
        )
        for at in places
    ]
    adjusted = dict(zip(places, stats.holm(p_values), strict=True))
    above = [place for place in places if adjusted[place] < stats.ALPHA]
    return above, [place for place in places if place not in above]
