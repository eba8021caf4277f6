"""Verdicts of an audit: names, thresholds, and sentences with the numbers that they are based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from whence.formatting import share
from whence.leak.audit.influence import added_vectors
from whence.leak.audit.measures import ROUNDING
from whence.leak.audit.shift import ROWS
from whence.leak.audit.target import AuditTarget
from whence.leak.audit.untrained import CLEAR, TwinComparison
from whence.leak.metrics import (
    LayerProfile,
    Leak,
    Outcome,
    PathwayEffect,
    PredictionMeasures,
    RatioTable,
    ShiftTest,
    Verdict,
    at_ratio,
)
from whence.leak.pathways import CAUSAL_ORDER, mask_tokens

ELSEWHERE = "elsewhere"
"""In the table of pathways: position that enters where no pathway was detected"""
SHIFT_THRESHOLD = 0.01
"""Shift sensitivity from which a model is called leaky."""
VARIANCE_THRESHOLD = 1e-4
"""Variance between positions at mask ratio 1, as a share of the target variance, from which a model is called leaky."""
DEAD = 0.99
"""Normalized MSE from which a model is said to reconstruct nothing."""
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
    """The verdict on measures by mask ratio.

    Args:
        untrained: measures of an untrained twin; empty where none is available.
        twins: comparison of errors with untrained twins; None where none is available.
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
    layers = profile.layers if profile and depends else {}
    first_layer = next((name for name, layer in layers.items() if layer.trained.shift >= SHIFT_THRESHOLD), None)
    named = named_pathways(pathways) if depends else []
    sentences = [
        HEADLINES[outcome],
        *_evidence(ratios, untrained),
        _reconstruction(errors, untrained, fitted),
        *_error_by_position(ratios, position_only),
        _beside_untrained(twins),
    ]
    if any(metrics.without_prior for metrics in ratios.values()):
        sentences.append("The model has an explicit position prior. The verdict is about the model without it.")
    threshold = f"a shift sensitivity of {share(SHIFT_THRESHOLD)}"
    if first_layer is not None:
        sentences.append(f"First layer whose activations at masked tokens reach {threshold}: {first_layer}.")
    elif layers:
        sentences.append(f"No layer reaches {threshold} in its activations at masked tokens.")
    if depends:
        sentences += _pathways(named, pathways)
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
            "normalized MSE": DEAD,
            "pathway, relative to the strongest": PATHWAY_SHARE,
        },
    )


def leak_of(ratios: Mapping[float, PredictionMeasures]) -> Leak:
    """The verdict from shift sensitivity and, at mask ratio 1, from the variance between positions."""
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
    """Pathways that alone reach the threshold of shift sensitivity, or `PATHWAY_SHARE` of the strongest one."""
    strongest = max((effect.alone for effect in effects), default=0.0)
    enough = min(SHIFT_THRESHOLD, PATHWAY_SHARE * strongest)
    names = [effect.name for effect in effects if effect.alone > ROUNDING**2 and effect.alone >= enough]
    return list(dict.fromkeys(names))


def _without_content(ratios: RatioTable) -> bool:
    """Whether replacing the visible content has no effect on predictions."""
    effects = [metrics.content.replaced for metrics in ratios.values() if metrics.content]
    return bool(effects) and all(effect is not None and effect < CONTENT_THRESHOLD for effect in effects)


HEADLINES = {
    "leaky": "Leaky: predictions of masked tokens depend on absolute position.",
    "traces": "Traces: predictions of masked tokens depend on absolute position, below the thresholds.",
    "clean": "Clean: predictions of masked tokens do not depend on absolute position.",
    "undecided": "Undecided: the noise of the model is larger than the thresholds, so that a dependence on absolute "
    "position could not be detected.",
    "reconstructs nothing": f"Reconstructs nothing: the normalized MSE is {DEAD} or more at every mask ratio (1 = "
    "predicting the mean). The other measures are no evidence for or against position leakage.",
    "no different from untrained": "No different from untrained: the model reconstructs no better and no worse than "
    "the same architecture with untrained weights. No measure below is an effect of training.",
}


def _evidence(ratios: RatioTable, untrained: RatioTable) -> list[str]:
    shifts, all_masked = _parts(ratios)
    of_twin, twin_all_masked = _parts(untrained)
    sentences = []
    if shifts:
        most = max(shifts, key=lambda ratio: shifts[ratio].sensitivity)
        limit = max(shift.limit for shift in shifts.values())
        conditions = _conditions(SHIFT_THRESHOLD, limit, of_twin[most].sensitivity if of_twin else None)
        sensitivity = f"{share(shifts[most].sensitivity)} of the prediction variance {at_ratio(most)}"
        sentences.append(f"Shift sensitivity: {sensitivity} ({conditions}).")
    if all_masked:
        twin = twin_all_masked.position_variance if twin_all_masked else None
        conditions = _conditions(VARIANCE_THRESHOLD, all_masked.position_variance_limit, twin)
        variance = f"{share(all_masked.position_variance)} of the target variance"
        sentences.append(f"Variance between positions at mask ratio 1: {variance} ({conditions}).")
    return sentences


def _conditions(threshold: float, limit: float, untrained: float | None) -> str:
    parts = [f"threshold {share(threshold)}"]
    if limit:
        parts.append(f"detection limit {share(limit)}")
    if untrained is not None:
        parts.append(f"untrained twin {share(untrained)}")
    return "; ".join(parts)


def _reconstruction(errors: Mapping[float, float], untrained: RatioTable, fitted: bool) -> str:
    of = " of the best linear map from masked to unmasked activations" if fitted else " at masked tokens"
    parts = []
    for ratio, error in errors.items():
        beside = f" (untrained {untrained[ratio].error:.2f})" if ratio in untrained else ""
        parts.append(f"{error:.2f}{beside} {at_ratio(ratio)}")
    return f"Normalized MSE{of} (1 = predicting the mean): {', '.join(parts)}."


def _error_by_position(ratios: RatioTable, position_only: bool) -> list[str]:
    """The error of predicting the mean of each position, where it is known."""
    known = {ratio: 1 - m.eta2_target for ratio, m in ratios.items() if m.eta2_target is not None}
    if not known:
        return []
    best = min(known, key=lambda ratio: ratios[ratio].error)
    sentence = f"Predicting the mean of each position has a normalized MSE of {known[best]:.2f} {at_ratio(best)}."
    if position_only:
        effect = f"changes less than {share(CONTENT_THRESHOLD)} of the prediction variance"
        sentence += f" Replacing the visible content {effect}: the model predicts from position only."
    return [sentence]


def _beside_untrained(twins: TwinComparison | None) -> str:
    if twins is None:
        return "Untrained twin not available: the effect of training is unknown."
    if twins.count == 1:
        return f"At one mask ratio or more, the normalized MSE is more than {CLEAR} from that of an untrained twin."
    ranges = ", ".join(f"{low:.2f} to {high:.2f} {at_ratio(r)}" for r, (low, high) in twins.intervals.items())
    lies = "lies outside, at one mask ratio or more," if twins.different else "lies within"
    interval = f"the 99 % prediction interval of {twins.count} untrained twins"
    return f"The normalized MSE {lies} {interval} ({ranges}; values above 1 count as 1)."


def _pathways(named: Sequence[str], effects: Sequence[PathwayEffect]) -> list[str]:
    sentences = []
    alone = {effect.name: effect.alone for effect in reversed(effects)}
    known = [name for name in named if name != ELSEWHERE]
    if known:
        listed = ", ".join(f"{name} ({share(alone[name])})" for name in known)
        sentences.append(f"Position enters through {listed}. In brackets: shift sensitivity of the pathway alone.")
    elif alone.keys() - {ELSEWHERE}:
        sentences.append("None of the detected pathways has a shift sensitivity on its own.")
    if ELSEWHERE in alone:
        also = " also" if known else ""
        sentences.append(
            f"Position{also} enters where no pathway was detected (shift sensitivity {share(alone[ELSEWHERE])} with "
            "all detected pathways ablated)."
        )
    return sentences


def facts(
    target: AuditTarget, masked: Tensor, ratio: float, pattern: float | None, pathways: Sequence[PathwayEffect]
) -> list[str]:
    """Sentences on the mask token, the mask pattern, causal order, and limits of the audit.

    Args:
        pattern: R² with which the mask pattern alone predicts position, at `ratio`.
        pathways: effects of ablating pathways.
    """
    few, mask = target.with_rows(8), masked[:8]
    sentences = [target.mask_description]
    tokens = mask_tokens(few, mask)
    if tokens is not None:
        equal = "equal" if torch.allclose(tokens, tokens[:1], atol=1e-6) else "not equal"
        sentences.append(f"Masked tokens are {equal} before encodings are added.")
    added = added_vectors(few, mask)
    if added is not None:
        at_masked, at_visible = (f"{float(added.norm(dim=-1)[where].mean()):.2g}" for where in (mask, ~mask))
        sentences.append(
            f"Additive encodings have a mean norm of {at_masked} at masked tokens and {at_visible} at visible tokens."
        )
    if pattern is not None:
        sentences.append(
            f"The mask pattern alone predicts position with R² = {pattern:.2f} {at_ratio(ratio)}. A probe can reach "
            "this R² without position leakage."
        )
    sentences += [*_causal(pathways), *target.limits]
    if len(target.content) > ROWS:
        sentences.append(f"The shift test uses the first {ROWS} of {len(target.content)} examples.")
    return [sentence for sentence in sentences if sentence]


def _causal(pathways: Sequence[PathwayEffect]) -> list[str]:
    """The part of the shift sensitivity that causal order explains by construction."""
    effect = next((effect for effect in pathways if effect.name == CAUSAL_ORDER), None)
    if effect is None or effect.without is None:
        return []
    return [
        "Attention is causal, so that the position of a token determines how many tokens it attends to. Mean shift "
        f"sensitivity: {share(effect.with_all)} with all pathways, {share(effect.alone)} with causal order as the only "
        f"pathway, {share(effect.without)} without causal order."
    ]
