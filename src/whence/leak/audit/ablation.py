"""The table of pathways: shift sensitivity without each, and with each alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from whence.experiments.instrument import OnProgress
from whence.leak.audit.measures import ROUNDING
from whence.leak.audit.shift import shift_test
from whence.leak.audit.target import AuditTarget
from whence.leak.metrics import PathwayEffect, ShiftTest
from whence.leak.pathways import Pathway, ablated, detect_pathways

ELSEWHERE = "elsewhere"
"""In the table of pathways: position that enters where no detector finds a pathway"""


def pathway_effects(
    target: AuditTarget,
    masked: Tensor,
    tests: Mapping[float, ShiftTest],
    targets: float,
    seed: int,
    on_progress: OnProgress,
) -> list[PathwayEffect]:
    """Ablate each pathway that a detector finds, and all others but it.

    Rows, placements and the prediction variance that shares are taken of are those of the shift test with all
    pathways, and every figure is the mean over mask ratios.

    Args:
        tests: the shift test with all pathways, by mask ratio.
        targets: standard deviation of the targets.

    Returns:
        One row per pathway, the strongest first. `alone` is less what is left with all of them ablated; that rest has
        a row of its own.
    """
    on_progress("Detecting pathways")
    pathways = detect_pathways(target, masked)
    with_all = _mean(tests)
    measured = {frozenset[int](): with_all}

    def sensitivity(without: Sequence[Pathway], message: str) -> float:
        key = frozenset(map(id, without))
        if key not in measured:  # without one of two is the other one alone
            on_progress(message)
            with ablated(without):
                measured[key] = _mean(
                    {r: shift_test(target, r, targets, seed, test.prediction_std) for r, test in tests.items()}
                )
        return measured[key]

    rest = sensitivity(pathways, "All pathways ablated")
    effects = [
        PathwayEffect(
            name=pathway.name,
            where=pathway.where,
            note=pathway.note,
            with_all=with_all,
            without=sensitivity([pathway], f"Ablated: {pathway.name}"),
            alone=max(0.0, sensitivity([p for p in pathways if p is not pathway], f"Alone: {pathway.name}") - rest),
        )
        for pathway in pathways
    ]
    if rest > ROUNDING**2:
        note = "left with all of the others ablated"
        effects.append(PathwayEffect(name=ELSEWHERE, where="", note=note, with_all=with_all, without=None, alone=rest))
    return sorted(effects, key=lambda effect: -effect.alone)


def _mean(tests: Mapping[float, ShiftTest]) -> float:
    return sum(test.sensitivity for test in tests.values()) / len(tests)
