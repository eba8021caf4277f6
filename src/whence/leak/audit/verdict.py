"""Verdicts of an audit: their words, their thresholds, and the sentences that name the numbers behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from whence.formatting import share
from whence.leak.audit.ablation import ELSEWHERE
from whence.leak.audit.measures import ROUNDING
from whence.leak.audit.untrained import CLEAR, TwinComparison
from whence.leak.metrics import (
    LayerProfile,
    Leak,
    Outcome,
    PathwayEffect,
    PredictionMeasures,
    RatioMetrics,
    RatioTable,
    ShiftTest,
    Verdict,
    at_ratio,
)

SHIFT_THRESHOLD = 0.01
"""Shift sensitivity from which a model is called leaky."""
VARIANCE_THRESHOLD = 1e-4
"""At mask ratio 1: variance between positions, over the target variance, from which a model is called leaky."""
DEAD = 0.99
"""Normalized error from which a model reconstructs nothing."""
CONTENT_THRESHOLD = 0.01
"""Share of the prediction variance below which replacing the visible content has no effect."""
PATHWAY_SHARE = 0.2
"""A pathway is named if alone it is leaky, or has at least this share of the shift sensitivity of the strongest."""


def judge(
    ratios: RatioTable,
    profile: LayerProfile | None,
    pathways: Sequence[PathwayEffect],
    untrained: RatioTable,
    twins: TwinComparison | None,
    *,
    fitted: bool = False,
) -> Verdict:
    """The verdict on measures by mask ratio, beside those of an untrained twin.

    Args:
        twins: errors beside those of untrained twins; None where no twin is available.
        fitted: errors are those of a linear map from activations, not of predictions that the model was trained for.
    """
    leak = leak_of(ratios)
    errors = {ratio: metrics.error for ratio, metrics in ratios.items()}
    position_only = leak == "leaky" and min(errors.values()) < DEAD and _without_content(ratios)
    outcome: Outcome = leak
    if min(errors.values()) >= DEAD:
        outcome = "reconstructs nothing"
    elif twins is not None and not twins.different:
        outcome = "no different from untrained"
    depends = leak in ("leaky", "traces")
    first_layer = first_layer_with_position(profile) if profile and depends else None
    named = named_pathways(pathways) if depends else []
    sentences = [
        HEADLINES[outcome],
        *_evidence(ratios, untrained),
        _reconstruction(errors, untrained, fitted),
        *_error_by_position(ratios, position_only),
        _beside_untrained(twins),
    ]
    if any(metrics.without_prior for metrics in ratios.values()):
        sentences.append("An explicit prior adds position; the verdict is about the model without it.")
    if depends:
        sentences += [*_layers(profile, first_layer), *_pathways(named, pathways)]
    return Verdict(
        outcome=outcome,
        leak=leak,
        position_only=position_only,
        sentences=sentences,
        first_layer=first_layer,
        pathways=named if outcome == leak else [],
        thresholds={
            "shift sensitivity": SHIFT_THRESHOLD,
            "variance between positions at mask ratio 1": VARIANCE_THRESHOLD,
            "normalized error": DEAD,
            "pathway": PATHWAY_SHARE,
        },
    )


def leak_of(ratios: Mapping[float, PredictionMeasures]) -> Leak:
    """From the shift sensitivity and, at mask ratio 1, from the variance between positions."""
    shifts, all_masked = _parts(ratios)
    sensitivity = max((shift.sensitivity for shift in shifts.values()), default=0.0)
    variance = all_masked.position_variance if all_masked else 0.0
    if sensitivity >= SHIFT_THRESHOLD or variance >= VARIANCE_THRESHOLD:
        return "leaky"
    shift_limit = max((shift.limit for shift in shifts.values()), default=0.0)
    variance_limit = all_masked.position_variance_limit if all_masked else 0.0
    if shift_limit >= SHIFT_THRESHOLD or variance_limit >= VARIANCE_THRESHOLD:
        return "undecided"
    return "traces" if max(sensitivity, variance) > ROUNDING**2 else "clean"


def _parts(ratios: Mapping[float, PredictionMeasures]) -> tuple[dict[float, ShiftTest], PredictionMeasures | None]:
    """The shift test at every mask ratio below 1, and all measures at 1."""
    shifts = {ratio: metrics.judged.shift for ratio, metrics in ratios.items() if ratio < 1}
    return shifts, ratios[1].judged if 1 in ratios else None


def named_pathways(effects: Sequence[PathwayEffect]) -> list[str]:
    """Pathways that alone reach the threshold of shift sensitivity, or a good part of the strongest one."""
    strongest = max((effect.alone for effect in effects), default=0.0)
    enough = min(SHIFT_THRESHOLD, PATHWAY_SHARE * strongest)
    names = [effect.name for effect in effects if effect.alone > ROUNDING**2 and effect.alone >= enough]
    return list(dict.fromkeys(names))


def first_layer_with_position(profile: LayerProfile) -> str | None:
    """The first whose activations at masked tokens reach the threshold of shift sensitivity."""
    return next((name for name, layer in profile.layers.items() if layer.trained.shift >= SHIFT_THRESHOLD), None)


def _without_content(ratios: RatioTable) -> bool:
    """Are predictions the same whatever the visible content?"""
    effects = [metrics.content.replaced for metrics in ratios.values() if metrics.content]
    return bool(effects) and all(effect is not None and effect < CONTENT_THRESHOLD for effect in effects)


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


def _evidence(ratios: RatioTable, untrained: RatioTable) -> list[str]:
    shifts, all_masked = _parts(ratios)
    sentences = []
    if shifts:
        most = max(shifts, key=lambda ratio: shifts[ratio].sensitivity)
        beside = _twin(untrained, most, lambda metrics: metrics.judged.shift.sensitivity)
        limit = max(shift.limit for shift in shifts.values())
        sentences.append(
            f"Shift sensitivity: {share(shifts[most].sensitivity)} of the prediction variance {at_ratio(most)} "
            f"(threshold {share(SHIFT_THRESHOLD)}{_limit(limit)}{beside})."
        )
    if all_masked:
        beside = _twin(untrained, 1, lambda metrics: metrics.judged.position_variance)
        sentences.append(
            f"Variance between positions at mask ratio 1: {share(all_masked.position_variance)} of the target variance "
            f"(threshold {share(VARIANCE_THRESHOLD)}{_limit(all_masked.position_variance_limit)}{beside})."
        )
    return sentences


def _limit(limit: float) -> str:
    return f"; detection limit {share(limit)}" if limit else ""


def _twin(untrained: RatioTable, ratio: float, measure: Callable[[RatioMetrics], float]) -> str:
    return f"; untrained twin {share(measure(untrained[ratio]))}" if ratio in untrained else ""


def _reconstruction(errors: Mapping[float, float], untrained: RatioTable, fitted: bool) -> str:
    of = " of the best linear map from masked to unmasked activations" if fitted else ""
    parts = []
    for ratio, error in errors.items():
        beside = f" (untrained {untrained[ratio].error:.2f})" if ratio in untrained else ""
        parts.append(f"{error:.2f}{beside} {at_ratio(ratio)}")
    return f"Normalized error{of} (1 = predicting the mean): {', '.join(parts)}."


def _error_by_position(ratios: RatioTable, position_only: bool) -> list[str]:
    """The target's own statistics: the error of predicting the mean of each position, where it is known."""
    known = {ratio: 1 - m.eta2_target for ratio, m in ratios.items() if m.eta2_target is not None}
    if not known:
        return []
    best = min(known, key=lambda ratio: ratios[ratio].error)
    alone = f"Predicting the mean of each position has a normalized error of {known[best]:.2f} {at_ratio(best)}"
    replaced = (
        f" Replacing the visible content changes less than {share(CONTENT_THRESHOLD)} of the prediction variance: the "
        "model predicts from position only."
    )
    return [f"{alone}.{replaced if position_only else ''}"]


def _beside_untrained(twins: TwinComparison | None) -> str:
    if twins is None:
        return "Untrained twin not available: what training changed is unknown."
    if twins.count == 1:
        return f"At one mask ratio or more, the error differs by more than {CLEAR} from that of an untrained twin."
    ranges = ", ".join(f"{low:.2f} to {high:.2f} {at_ratio(r)}" for r, (low, high) in twins.intervals.items())
    lies = "lies outside, at one mask ratio or more," if twins.different else "lies within"
    return f"The error {lies} the 99 % prediction interval of {twins.count} untrained twins ({ranges}; 1 at most)."


def _layers(profile: LayerProfile | None, first: str | None) -> list[str]:
    if profile is None:
        return []
    if first is None:
        return [f"No layer reaches a shift sensitivity of {share(SHIFT_THRESHOLD)} at masked tokens."]
    threshold = share(SHIFT_THRESHOLD)
    return [f"The first layer with a shift sensitivity of {threshold} or more at masked tokens is {first}."]


def _pathways(named: Sequence[str], effects: Sequence[PathwayEffect]) -> list[str]:
    sentences = []
    alone = {effect.name: effect.alone for effect in reversed(effects)}
    known = [name for name in named if name != ELSEWHERE]
    if known:
        listed = ", ".join(f"{name} (alone {share(alone[name])})" for name in known)
        sentences.append(f"Position enters through {listed}.")
    elif alone.keys() - {ELSEWHERE}:
        sentences.append("None of the detected pathways has a shift sensitivity alone.")
    if ELSEWHERE in alone:
        what = "Some position" if known else "Position"
        sentences.append(
            f"{what} enters where no pathway was detected ({share(alone[ELSEWHERE])} with all pathways ablated)."
        )
    return sentences
