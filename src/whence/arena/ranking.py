"""Which cells are above their floor, and which differences between encodings are real."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from whence import stats
from whence.arena.score import PARTS, Part

if TYPE_CHECKING:
    from whence.arena.table import Row

Comparisons = Mapping[Part, Mapping[tuple[str, str], stats.Comparison]]
Looks = Literal["once", "often"]
"""Once, at a number of seeds fixed beforehand; or after every seed, until decided, which has to be paid for."""
SeedScores = Mapping[str, Mapping[int, float]]
"""By encoding, by seed."""


def judge(rows: Sequence[Row]) -> list[Row]:
    """Every cell that is shown is tested against its floor, with one correction over all of them."""
    shown = [(row, part) for row in rows for part in PARTS if part == "id" or row.mastered]
    cells = {(row.encoding, part): score for row, part in shown if (score := row.score(part)) is not None}
    adjusted = stats.holm([score.p_value for score in cells.values()])
    judged = {
        cell: replace(score, verdict=stats.verdict(score.accuracy, p))
        for (cell, score), p in zip(cells.items(), adjusted, strict=True)
    }
    return [
        replace(
            row,
            within=judged.get((row.encoding, "id"), row.within),
            beyond=judged.get((row.encoding, "ood"), row.beyond),
        )
        for row in rows
    ]


def rank(rows: Sequence[Row], looks: Looks) -> Comparisons:
    """All pairs of encodings that may be ranked; beyond training, of those that mastered the task within it."""
    verdicts: dict[Part, dict[str, str]] = {
        "id": {row.encoding: row.verdict for row in rows if row.within},
        "ood": {row.encoding: row.beyond_verdict for row in rows if row.beyond and row.mastered},
    }
    ranked = {part: stats.rankable(found) for part, found in verdicts.items()}
    scores = {part: {row.encoding: row.by_seed(part) for row in rows if row.score(part)} for part in PARTS}
    return (_compare_once if looks == "once" else _compare_often)(scores, ranked)


def _compare_once(scores: Mapping[Part, SeedScores], ranked: Mapping[Part, Sequence[str]]) -> Comparisons:
    """At a number of seeds fixed beforehand. Who lacks a seed that others have stays out, or all would lose it."""
    asked = {part: _complete({name: scores[part][name] for name in names}) for part, names in ranked.items()}
    asked = {part: contenders for part, contenders in asked.items() if len(contenders) > 1}
    levels = stats.share_alpha({part: len(contenders) for part, contenders in asked.items()})
    found: dict[Part, Mapping[tuple[str, str], stats.Comparison]] = {}
    for part, contenders in asked.items():
        seeds = sorted(set.intersection(*(set(by_seed) for by_seed in contenders.values())))
        if seeds:
            paired = {name: [by_seed[seed] for seed in seeds] for name, by_seed in contenders.items()}
            found[part] = stats.compare(paired, levels[part])
    return found


def _complete(contenders: SeedScores) -> SeedScores:
    """Those with as many seeds as any, if there are two; else all, over the seeds that they share."""
    most = max((len(by_seed) for by_seed in contenders.values()), default=0)
    whole = {name: by_seed for name, by_seed in contenders.items() if len(by_seed) == most}
    return whole if len(whole) > 1 else contenders


def _compare_often(scores: Mapping[Part, SeedScores], ranked: Mapping[Part, Sequence[str]]) -> Comparisons:
    """After every seed: all pairs pay for the looks, those that may be ranked are shown."""
    differences = {
        (part, one, two): [
            contenders[one][s] - contenders[two][s] for s in sorted(set(contenders[one]) & set(contenders[two]))
        ]
        for part, contenders in scores.items()
        for one, two in itertools.combinations(contenders, 2)
    }
    found: dict[Part, dict[tuple[str, str], stats.Comparison]] = {}
    for (part, one, two), comparison in stats.sequential(differences).items():
        if one in ranked[part] and two in ranked[part]:
            found.setdefault(part, {})[one, two] = comparison
    return found
