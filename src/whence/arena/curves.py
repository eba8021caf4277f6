"""What a figure draws of a row: accuracy over steps and positions."""

from __future__ import annotations

from whence.arena.score import Member, Part
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
