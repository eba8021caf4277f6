"""What a figure draws of a row: accuracy over steps and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence import stats
from whence.arena.score import Member, Part
from whence.shortcuts.by_position import baseline_by_position

if TYPE_CHECKING:
    from whence.arena.table import Row


def accuracy_by_position(row: Row, length: int) -> list[tuple[int, float]]:
    """Over seeds, for tasks with an answer per token: (first position of a bin, accuracy), where anything was asked."""
    found = [member.metrics["lengths"][str(length)].get("positions") for member in row.members]
    if not found or found[0] is None:
        return []
    width, total = found[0]["width"], found[0]["total"]
    right = [sum(counts) for counts in zip(*(f["correct"] for f in found), strict=True)]
    return [(i * width, c / (n * len(found))) for i, (c, n) in enumerate(zip(right, total, strict=True)) if n]


def learning_curve(member: Member, part: Part = "id") -> list[tuple[int, float]]:
    headlines = ((e["step"], e["metrics"]["headline"]) for e in member.evaluations)
    return [(step, values[part]) for step, values in headlines if part in values]


def learned_positions(row: Row, length: int) -> tuple[list[int], list[int]] | None:
    """Of the positions asked about, those above their floor and the others; None where positions are not single, or
    where the place alone gives the answer.

    Exact tests over all seeds, Holm-corrected over the positions.
    """
    found = [member.metrics["lengths"][str(length)].get("positions") for member in row.members]
    if not found or found[0] is None or found[0]["width"] > 1:
        return None
    floors = baseline_by_position(row.members[0].run.task.build(), length)
    places = [place for place in floors if found[0]["total"][place]]
    if any(floors[place] >= 1 for place in places):
        return None
    p_values = [
        stats.p_above(
            [f["correct"][at] / f["total"][at] for f in found], sum(f["total"][at] for f in found), floors[at]
        )
        for at in places
    ]
    adjusted = dict(zip(places, stats.holm(p_values), strict=True))
    above = [place for place in places if adjusted[place] < stats.ALPHA]
    return above, [place for place in places if place not in above]
