"""Which cells are above the shortcut baseline, and which differences between encodings are real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from whence import stats
from whence.arena.score import PARTS, Part

if TYPE_CHECKING:
    from whence.arena.table import Row

Comparisons = Mapping[Part, Mapping[tuple[str, str], stats.Comparison]]
Family = Literal["table", "sheet"]
"""All comparisons of a table, or of all tables that are made together, share one error."""


@dataclass(frozen=True)
class Inference:
    """How the differences of a comparison are tested."""

    design: stats.TestDesign = "fixed"
    family: Family = "table"
    control: str = ""
    """Compare every encoding with this one; empty: all pairs"""

    def pairs(self, names: Sequence[str]) -> list[tuple[str, str]]:
        if self.control in names:
            return stats.against(self.control, names)
        return stats.all_pairs(names)


PLANNED = Inference()
"""All pairs of a table, at a number of seeds that was planned."""


def judge(rows: Sequence[Row]) -> list[Row]:
    """Every cell that is shown is tested against its shortcut baseline, with one correction over all of them."""
    shown = [(row, part) for row in rows for part in PARTS if part == "id" or row.mastered]
    cells = {(row.encoding, part): score for row, part in shown if (score := row.score(part)) is not None}
    adjusted = stats.holm([score.p_value for score in cells.values()])
    judged = {
        cell: replace(score, verdict=stats.verdict(score.accuracy, p))
        for (cell, score), p in zip(cells.items(), adjusted, strict=True)
    }
    for row in rows:
        if row.diverged and (cell := judged.get((row.encoding, "id"))) and cell.verdict == "solved":
            judged[row.encoding, "id"] = replace(cell, verdict="learning")  # those that survived are not all
    return [
        replace(
            row,
            within=judged.get((row.encoding, "id"), row.within),
            beyond=judged.get((row.encoding, "ood"), row.beyond),
        )
        for row in rows
    ]


def rank(
    tables: Sequence[Sequence[Row]],
    inference: Inference,
    designs: Sequence[stats.TestDesign | None],
    others: Sequence[int],
) -> list[tuple[Comparisons, int]]:
    """For each table its comparisons, and how many share their error; none where a table has no design.

    The family holds every pair that was planned, whatever came of it, and `others` that were shown before; those of
    which both may be ranked are shown.
    """
    planned = [_planned(rows, inference) for rows in tables]
    if inference.family == "sheet":
        every = [pair for pairs in planned for pair in pairs]
        design = designs[0] if designs else None
        compared = iter(stats.compare(every, design=design, others=others[0]) if design else [])
        results = [[next(compared) for _ in pairs] if design else [] for pairs in planned]
    else:
        results = [
            stats.compare(pairs, design=design, others=more) if design else []
            for pairs, design, more in zip(planned, designs, others, strict=True)
        ]
    return [
        (_shown(rows, comparisons), comparisons[0].family if comparisons else 0)
        for rows, comparisons in zip(tables, results, strict=True)
    ]


def _planned(rows: Sequence[Row], inference: Inference) -> list[stats.Pair]:
    parts = [part for part in PARTS if part == "id" or any(row.beyond for row in rows)]
    failed = {row.encoding: row.diverged for row in rows}
    return [
        stats.pair(stats.ACCURACY, a, b, {row.encoding: row.by_seed(part) for row in rows}, failed=failed, part=part)
        for part in parts
        for a, b in inference.pairs([row.encoding for row in rows])
    ]


def _shown(rows: Sequence[Row], comparisons: Sequence[stats.Comparison]) -> Comparisons:
    """Of encodings that are above the baseline; out of distribution, of those that mastered the task in it."""
    ranked = {
        "id": stats.rankable({row.encoding: row.verdict for row in rows if row.ranked}),
        "ood": stats.rankable({row.encoding: row.beyond_verdict for row in rows if row.ranked and row.mastered}),
    }
    shown: dict[Part, dict[tuple[str, str], stats.Comparison]] = {}
    for c in comparisons:
        if c.n and c.a in ranked[c.part] and c.b in ranked[c.part]:
            shown.setdefault(c.part, {})[c.a, c.b] = c
    return shown
