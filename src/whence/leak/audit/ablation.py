"""The table of pathways: shift sensitivity without each, and with each alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from whence.leak.audit.measures import ROUNDING
from whence.leak.audit.shift import shift_effect
from whence.leak.audit.target import AuditTarget
from whence.leak.audit.verdict import ELSEWHERE
from whence.leak.pathways import PATHWAYS
from whence.leak.pathways.base import Pathway, ablated


def pathways(
    target: AuditTarget,
    masked: Tensor,
    usual: Mapping[float, Mapping[str, Any]],
    targets: float,
    seed: int,
    on_progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Ablate each pathway that a detector finds, and all others but it.

    Rows, placements and the prediction variance that shares are taken of are those of the shift test with all
    pathways, and every figure is the mean over mask ratios.

    Args:
        usual: the shift test with all pathways, by mask ratio.
        targets: standard deviation of the targets.

    Returns:
        One row per pathway, the strongest first: shift sensitivity `with_all` pathways, `without` this one, and with
        this one `alone`, less what is left with all of them ablated. That rest has a row of its own.
    """
    on_progress("Detecting pathways")
    entrances = [pathway for detector in PATHWAYS for pathway in detector().detect(target, masked)]
    measured = {frozenset[int](): _mean(usual)}

    def leak(shut: Sequence[Pathway], what: str) -> float:
        key = frozenset(map(id, shut))
        if key not in measured:  # without one of two is the other one alone
            on_progress(what)
            with ablated(shut):
                found = {r: shift_effect(target, r, targets, seed, shift["own"]) for r, shift in usual.items()}
            measured[key] = _mean(found)
        return measured[key]

    rest = leak(entrances, "All pathways ablated")
    table = []
    for pathway in entrances:
        others = [other for other in entrances if other is not pathway]
        table.append(
            {
                "name": pathway.name,
                "where": pathway.where,
                "note": pathway.note,
                "with_all": _mean(usual),
                "without": leak([pathway], f"Ablated: {pathway.name}"),
                "alone": max(0.0, leak(others, f"Alone: {pathway.name}") - rest),
            }
        )
    if rest > ROUNDING**2:
        note = "left with all of the others ablated"
        left = {"where": "", "note": note, "with_all": _mean(usual), "without": None, "alone": rest}
        table.append({"name": ELSEWHERE, **left})
    return sorted(table, key=lambda row: -row["alone"])


def _mean(shifts: Mapping[float, Mapping[str, Any]]) -> float:
    return sum(shift["of_prediction"] for shift in shifts.values()) / len(shifts)
