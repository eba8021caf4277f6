"""What a figure draws of a row: accuracy over steps and positions."""

from __future__ import annotations

from whence import stats
from whence.arena.metrics import Part, PositionCounts
from whence.arena.run import ArenaRun
from whence.experiments.results import RunResult, evaluations_of, final_metrics
from whence.experiments.table import Row
from whence.shortcuts.by_position import baseline_by_position


def accuracy_by_position(row: Row[ArenaRun], length: int) -> list[tuple[int, float]]:
    """Over seeds, for tasks with an answer per token: (first position of a bin, accuracy), where anything was asked."""
    bins = position_counts(row, length)
    if not bins:
        return []
    width, total = bins[0].width, bins[0].total
    correct = [sum(counts) for counts in zip(*(of.correct for of in bins), strict=True)]
    return [(i * width, c / (n * len(bins))) for i, (c, n) in enumerate(zip(correct, total, strict=True)) if n]


def position_counts(row: Row[ArenaRun], length: int) -> list[PositionCounts]:
    """Of every seed; none where sequences have one answer."""
    counts = [final_metrics(result).lengths[length].positions for result in row.finished]
    return [positions for positions in counts if positions]


def learning_curve(result: RunResult[ArenaRun], part: Part = "id") -> list[tuple[int, float]]:
    parts = ((evaluation.step, evaluation.metrics.part(part)) for evaluation in evaluations_of(result))
    return [(step, counts.accuracy) for step, counts in parts if counts]


def accuracy_by_length(row: Row[ArenaRun]) -> dict[int, list[float]]:
    """Per length, the accuracy of every seed."""
    if not row.finished:
        return {}
    run = row.finished[0].run
    metrics = [final_metrics(result) for result in row.finished]
    return {n: [m.lengths[n].accuracy for m in metrics] for n in (run.train_length, *run.test_lengths)}


def learned_positions(row: Row[ArenaRun], length: int) -> tuple[list[int], list[int]] | None:
    """Of the positions asked about, those above their baseline and the others; None where positions are not single, or
    where the position alone gives the answer.

    Exact tests over all seeds, Holm-corrected over the positions.
    """
    bins = position_counts(row, length)
    if not bins or bins[0].width > 1:
        return None
    baselines = baseline_by_position(row.finished[0].run.task.build(), length)
    places = [place for place in baselines if bins[0].total[place]]
    if any(baselines[place] >= 1 for place in places):
        return None
    p_values = [
        stats.p_above([of.correct[at] / of.total[at] for of in bins], sum(of.total[at] for of in bins), baselines[at])
        for at in places
    ]
    adjusted = dict(zip(places, stats.holm(p_values), strict=True))
    above = [place for place in places if adjusted[place] < stats.ALPHA]
    return above, [place for place in places if place not in above]
