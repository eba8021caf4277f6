"""Verdicts of an audit: their words, their thresholds, and the sentences that name the numbers behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from whence.formatting import share
from whence.leak.audit.measures import ROUNDING
from whence.leak.audit.untrained import CLEAR, Comparison
from whence.leak.audit.words import at_ratio

Leak = Literal["clean", "traces", "undecided", "leaky"]
"""How far predictions depend on absolute position, the least first."""
Outcome = Literal["reconstructs nothing", "no different from untrained", Leak]
"""The verdict, the one that comes first where several hold."""
LEAKS: tuple[Leak, ...] = get_args(Leak)
POSITION_ONLY = "position only"

MOVED = 0.01
"""Shift sensitivity from which a model is called leaky."""
APART = 1e-4
"""At mask ratio 1: variance between positions, over the target variance, from which a model is called leaky."""
DEAD = 0.99
"""Normalized error from which a model reconstructs nothing."""
REPLACED = 0.01
"""Share of the prediction variance below which replacing the visible content has no effect."""
ELSEWHERE = "elsewhere"
"""In the table of pathways: position that enters where no detector finds a pathway."""
LET_IN = 0.2
"""A pathway is named if alone it is leaky, or has at least this share of the shift sensitivity of the strongest."""


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    leak: Leak
    """How far predictions depend on position, whatever they are worth as reconstructions"""
    position_only: bool
    """Predictions do not change when the visible content is replaced"""
    sentences: list[str]
    entry: str | None
    """The first layer whose activations depend on position"""
    entrances: list[str]
    """Pathways through which position enters, the strongest first; empty unless the outcome is leaky or traces"""
    thresholds: dict[str, float]

    @property
    def notes(self) -> list[str]:
        """The verdict in a word or two."""
        return [self.outcome, *[POSITION_ONLY] * self.position_only]


def judge(
    ratios: Mapping[str, Mapping[str, Any]],
    profile: Mapping[str, Mapping[str, Any]],
    sources: Sequence[Mapping[str, Any]],
    untrained: Mapping[str, Mapping[str, Any]],
    compared: Comparison | None,
    *,
    fitted: bool = False,
) -> Verdict:
    """The verdict on measures by mask ratio, beside those of an untrained twin.

    Args:
        compared: errors beside those of untrained twins; None where no twin is available.
        fitted: errors are those of a linear map from activations, not of predictions that the model was trained for.
    """
    leak = leaks(ratios)
    errors = {ratio: measures["error"] for ratio, measures in ratios.items()}
    by_position = _errors_by_position(ratios)
    only = leak == "leaky" and min(errors.values()) < DEAD and _without_content(ratios)
    outcome: Outcome = leak
    if min(errors.values()) >= DEAD:
        outcome = "reconstructs nothing"
    elif compared is not None and not compared.different:
        outcome = "no different from untrained"
    depends = leak in ("leaky", "traces")
    entry = first_layer_with_position(profile) if depends else None
    named = entrances(sources) if depends else []
    sentences = [
        HEADLINES[outcome],
        *_evidence(ratios, untrained),
        _reconstruction(errors, untrained, fitted),
        *_beside_position(errors, by_position, only),
        _beside_untrained(compared),
    ]
    if any(measures.get("inside") for measures in ratios.values()):
        sentences.append("An explicit prior adds position; the verdict is about the model without it.")
    if depends:
        sentences += _pathways(entry, len(profile), named, sources)
    thresholds = {
        "shift sensitivity": MOVED,
        "variance between positions at mask ratio 1": APART,
        "normalized error": DEAD,
        "pathway": LET_IN,
    }
    return Verdict(outcome, leak, only, sentences, entry, named if outcome == leak else [], thresholds)


def leaks(ratios: Mapping[str, Mapping[str, Any]]) -> Leak:
    """From the shift sensitivity and, at mask ratio 1, from the variance between positions."""
    moved, wholly = _parts(ratios)
    most = max((shift["of_prediction"] for shift in moved.values()), default=0.0)
    apart = wholly["spread"] if wholly else 0.0
    if most >= MOVED or apart >= APART:
        return "leaky"
    shift_limit = max((shift.get("limit", 0.0) for shift in moved.values()), default=0.0)
    variance_limit = wholly.get("spread_limit", 0.0) if wholly else 0.0
    if shift_limit >= MOVED or variance_limit >= APART:
        return "undecided"
    return "traces" if max(most, apart) > ROUNDING**2 else "clean"


def _parts(ratios: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Mapping[str, Any]], Mapping[str, Any] | None]:
    """The shift test at every mask ratio below 1, and all measures at 1."""
    moved = {ratio: judged(measures)["shift"] for ratio, measures in ratios.items() if float(ratio) < 1}
    return moved, next((judged(measures) for ratio, measures in ratios.items() if float(ratio) == 1), None)


def judged(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a verdict is about: position that an explicit prior adds is no leak."""
    return found.get("inside") or found


def entrances(sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Pathways that alone reach the threshold of shift sensitivity, or a good part of the strongest one."""
    widest = max((row["alone"] for row in sources), default=0.0)
    enough = min(MOVED, LET_IN * widest)
    found = [row["name"] for row in sources if row["alone"] > ROUNDING**2 and row["alone"] >= enough]
    return list(dict.fromkeys(found))


def first_layer_with_position(profile: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The first whose activations at masked tokens reach the threshold of shift sensitivity."""
    return next((layer for layer, found in profile.items() if found["trained"]["moved"] >= MOVED), None)


def _without_content(ratios: Mapping[str, Mapping[str, Any]]) -> bool:
    """Are predictions the same whatever the visible content?"""
    effects = [measures["content"]["replaced"] for measures in ratios.values() if measures.get("content")]
    return bool(effects) and all(effect is not None and effect < REPLACED for effect in effects)


def _errors_by_position(ratios: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The error of predicting the mean of each position, where it is known."""
    shares = {ratio: measures.get("eta2_target") for ratio, measures in ratios.items()}
    return {ratio: 1 - share for ratio, share in shares.items() if share is not None}


HEADLINES = {
    "leaky": "Leaky: predictions of masked tokens depend on absolute position.",
    "traces": "Traces: predictions of masked tokens depend on absolute position, below the thresholds.",
    "clean": "Clean: predictions of masked tokens do not depend on absolute position.",
    "undecided": "Undecided: the model draws random numbers, and a dependence on absolute position above the threshold "
    "could be hidden by them.",
    "reconstructs nothing": f"Reconstructs nothing: at every mask ratio the normalized error is {DEAD} or more (1 = "
    "predicting the mean). The other measures are no evidence for or against position leakage.",
    "no different from untrained": "No different from the same model untrained: it reconstructs no more and no less, "
    "so that no measure below is an effect of training.",
}


def _evidence(ratios: Mapping[str, Mapping[str, Any]], untrained: Mapping[str, Mapping[str, Any]]) -> list[str]:
    moved, wholly = _parts(ratios)
    told = []
    if moved:
        most = max(moved, key=lambda ratio: moved[ratio]["of_prediction"])
        beside = _twin(untrained, most, lambda measures: share(judged(measures)["shift"]["of_prediction"]))
        limit = max(shift.get("limit", 0.0) for shift in moved.values())
        told.append(
            f"Shift sensitivity: {share(moved[most]['of_prediction'])} of the prediction variance {at_ratio(most)} "
            f"(threshold {share(MOVED)}{_limit(limit)}{beside})."
        )
    if wholly:
        beside = _twin(untrained, "1", lambda measures: share(judged(measures)["spread"]))
        told.append(
            f"Variance between positions at mask ratio 1: {share(wholly['spread'])} of the target variance "
            f"(threshold {share(APART)}{_limit(wholly.get('spread_limit', 0.0))}{beside})."
        )
    return told


def _limit(limit: float) -> str:
    return f"; detection limit {share(limit)}" if limit else ""


def _twin(untrained: Mapping[str, Mapping[str, Any]], ratio: str, read: Any) -> str:
    return f"; untrained twin {read(untrained[ratio])}" if ratio in untrained else ""


def _reconstruction(errors: Mapping[str, float], untrained: Mapping[str, Mapping[str, Any]], fitted: bool) -> str:
    of = " of the best linear map from masked to unmasked activations" if fitted else ""
    told = []
    for ratio, error in errors.items():
        beside = f" (untrained {untrained[ratio]['error']:.2f})" if ratio in untrained else ""
        told.append(f"{error:.2f}{beside} {at_ratio(ratio)}")
    return f"Normalized error{of} (1 = predicting the mean): {', '.join(told)}."


def _beside_position(errors: Mapping[str, float], by_position: Mapping[str, float], only: bool) -> list[str]:
    """The target's own statistics: how far position alone would go."""
    if not by_position:
        return []
    best = min(by_position, key=lambda ratio: errors[ratio])
    alone = f"Predicting the mean of each position has a normalized error of {by_position[best]:.2f} {at_ratio(best)}"
    replaced = (
        f" Replacing the visible content changes less than {share(REPLACED)} of the prediction variance: the model "
        "predicts from position only."
    )
    return [f"{alone}.{replaced if only else ''}"]


def _beside_untrained(compared: Comparison | None) -> str:
    if compared is None:
        return "Untrained twin not available: what training changed is unknown."
    if compared.twins == 1:
        return f"At one mask ratio or more, the error differs by more than {CLEAR} from that of an untrained twin."
    ranges = ", ".join(f"{low:.2f} to {high:.2f} {at_ratio(r)}" for r, (low, high) in compared.between.items())
    lies = "lies outside, at one mask ratio or more," if compared.different else "lies within"
    return f"The error {lies} the 99 % prediction interval of {compared.twins} untrained twins ({ranges}; 1 at most)."


def _pathways(entry: str | None, layers: int, named: Sequence[str], sources: Sequence[Mapping[str, Any]]) -> list[str]:
    told = []
    if layers:
        nowhere = f"No layer reaches a shift sensitivity of {share(MOVED)} at masked tokens."
        told.append(
            f"The first layer with a shift sensitivity of {share(MOVED)} or more at masked tokens is {entry}."
            if entry
            else nowhere
        )
    alone = {row["name"]: row["alone"] for row in reversed(sources)}
    known = [name for name in named if name != ELSEWHERE]
    if known:
        told.append(
            "Position enters through " + ", ".join(f"{name} (alone {share(alone[name])})" for name in known) + "."
        )
    elif alone.keys() - {ELSEWHERE}:
        told.append("None of the detected pathways has a shift sensitivity alone.")
    if ELSEWHERE in alone:
        what = "Some position" if known else "Position"
        told.append(
            f"{what} enters where no pathway was detected ({share(alone[ELSEWHERE])} with all pathways ablated)."
        )
    return told
