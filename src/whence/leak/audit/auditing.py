"""The audit of a masked model: all measures at several mask ratios, beside an untrained twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor

from whence.errors import UserError
from whence.leak import RATIOS
from whence.leak.audit.ablation import pathways
from whence.leak.audit.checks import check, check_finite, check_targets
from whence.leak.audit.facts import facts
from whence.leak.audit.influence import content_effect, gradient_share
from whence.leak.audit.look import look
from whence.leak.audit.measures import ROUNDING, Sample, deviation, error
from whence.leak.audit.probe import fitted_error, pattern_probe, probe
from whence.leak.audit.shape import AuditShape
from whence.leak.audit.shift import shift_profile
from whence.leak.audit.target import BATCH, AuditTarget
from whence.leak.audit.untrained import TWINS, Comparison, compare
from whence.leak.audit.verdict import Verdict, judge
from whence.random import derive, preserve_rng_state

OnProgress = Callable[[str], None]
LONGEST_REASON = 200


@dataclass(frozen=True)
class Audit:
    """All results of an audit, as in its JSON."""

    name: str
    tokens: int
    rows: int
    ratios: dict[str, dict[str, Any]]
    """By mask ratio: measures of the predictions"""
    untrained: dict[str, dict[str, Any]]
    """The same of an untrained twin; empty where none is available"""
    profile: dict[str, dict[str, Any]]
    """By layer: how far its activations depend on position, trained and untrained"""
    sources: list[dict[str, Any]]
    """Every detected pathway: shift sensitivity without it, and with it alone"""
    facts: list[str]
    """How the model is masked, and what that explains by construction"""
    pictures: dict[str, Any]
    """For drawing: mean prediction by position, similarity of positions"""
    verdict: Verdict

    def __str__(self) -> str:
        return "\n".join([self.name, *self.verdict.sentences])

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "verdict": vars(self.verdict)}

    @classmethod
    def read(cls, document: Any) -> Self:
        """Back from JSON, wherever that comes from."""
        try:
            AuditShape.read(document)
        except UserError as error:
            reason = str(error).splitlines()[0][:LONGEST_REASON]
            raise UserError(f"audit: this is not what an audit looks like ({reason}).", field="audit") from None
        told = {field.name: document[field.name] for field in fields(cls)}
        told["verdict"] = Verdict(**{field.name: told["verdict"][field.name] for field in fields(Verdict)})
        return cls(**told)


def audit(
    target: AuditTarget,
    ratios: Sequence[float] = RATIOS,
    *,
    seed: int = 0,
    on_progress: OnProgress = lambda words: None,
) -> Audit:
    """Measure position leakage of a masked model.

    Runs the shift test, linear probes and pathway ablations at each mask ratio, beside an untrained twin. Training
    mode and random state are restored afterwards.

    Args:
        target: the model and the examples it is audited on.
        ratios: mask ratios, above 0 and up to 1.
        seed: determines the masks and, for models that draw random numbers, the noise.
        on_progress: called with progress messages.

    Raises:
        UserError: where the inputs or the measures are degenerate, so that any verdict would be wrong.
    """
    check(target, ratios)
    training = [(module, module.training) for module in target.model.modules()]
    try:
        with preserve_rng_state():
            torch.manual_seed(derive(seed, "audit"))
            return _audit(target, sorted(set(ratios)), seed, on_progress)
    finally:
        for module, flag in training:
            module.training = flag


def _audit(target: AuditTarget, ratios: Sequence[float], seed: int, on_progress: OnProgress) -> Audit:
    targets = target.targets()
    check_targets(targets)
    looked = {ratio: _look(target, targets, ratio, seed, on_progress) for ratio in ratios}
    found = {f"{ratio:g}": measured for ratio, (_, measured) in looked.items()}
    check_finite(target.name, found)
    twin = target.untrained(0) if target.untrained else None
    before: dict[str, dict[str, Any]] = {}
    if twin is not None:
        beside = twin.targets()
        before = {
            f"{ratio:g}": _look(twin, beside, ratio, seed, on_progress, "untrained twin, ")[1] for ratio in ratios
        }
        check_finite(f"the untrained twin of {target.name}", before)
    compared = _beside_twins(target, _errors(found), _errors(before), seed, on_progress) if before else None
    between = [ratio for ratio in ratios if ratio < 1]
    middle = min(between, key=lambda ratio: abs(ratio - 0.5)) if between else ratios[-1]
    masked = target.draw_mask(middle, seed)
    profile = _profile(target, twin, middle, seed, on_progress)
    usual = {ratio: found[f"{ratio:g}"]["shift"] for ratio in between or ratios}
    sources = pathways(target, masked, usual, deviation(targets), seed, on_progress)
    check_finite(target.name, {"layer": profile, "pathway": sources})
    return Audit(
        target.name,
        target.tokens,
        len(target.content),
        found,
        before,
        profile,
        sources,
        facts(target, masked, middle, found[f"{middle:g}"]["pattern_r2"], sources),
        _pictures(looked[ratios[-1]][0]),
        judge(found, profile, sources, before, compared, fitted=target.fitted),
    )


def _look(
    target: AuditTarget, targets: Tensor, ratio: float, seed: int, on_progress: OnProgress, who: str = ""
) -> tuple[Sample, dict[str, Any]]:
    on_progress(f"{who}mask ratio {ratio:g}")
    sample, found = look(target, lambda: sample_of(target, targets, ratio, seed), ratio, seed)
    pattern = pattern_probe(sample, target.inner())
    return sample, {
        **found,
        "error": _error(target, sample),
        "pattern_r2": pattern.best if pattern else None,
        "content": content_effect(target, sample, seed),
        "gradient": gradient_share(target, sample.masked),
    }


def sample_of(target: AuditTarget, targets: Tensor, ratio: float, seed: int) -> Sample:
    """Predictions of masked tokens beside their targets."""
    masked = target.draw_mask(ratio, seed)
    # With everything masked, rows are repeated draws of a noisy model: each must have noise of its own.
    batch = 1 if ratio == 1 and target.is_noisy() else BATCH
    prediction = target.predictions(target.content, masked, batch)
    return Sample(prediction, targets, masked, target.position, target.stride)


def _error(target: AuditTarget, sample: Sample) -> float:
    return fitted_error(sample) if target.fitted else error(sample)


def _errors(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    return {ratio: measures["error"] for ratio, measures in found.items()}


def _beside_twins(
    target: AuditTarget, errors: Mapping[str, float], first: Mapping[str, float], seed: int, on_progress: OnProgress
) -> Comparison:
    """Twins after the first are measured only where the first leaves it open."""
    compared = compare(errors, [first])
    if compared.different or target.untrained is None:
        return compared
    twins = [first]
    for index in range(1, TWINS):
        on_progress(f"untrained twin {index + 1} of {TWINS}")
        twin = target.untrained(index)
        if twin is not None:
            targets = twin.targets()
            twins.append({ratio: _error(twin, sample_of(twin, targets, float(ratio), seed)) for ratio in errors})
    return compare(errors, twins)


def _profile(
    target: AuditTarget, twin: AuditTarget | None, ratio: float, seed: int, on_progress: OnProgress
) -> dict[str, dict[str, Any]]:
    """Position in the activations at masked tokens after every layer, beside the untrained twin."""
    found: dict[str, dict[str, Any]] = {layer: {} for layer in target.layers}
    if not found:
        return {}
    for who, one in (("trained", target), ("untrained", twin)):
        if one is None:
            continue
        on_progress(f"layers, {who}")
        masked = one.draw_mask(ratio, seed)
        states = one.activations(one.content, masked)
        moved = shift_profile(one, ratio, seed)
        for layer, state in states.items():
            sample = Sample(state, state, masked, one.position)
            told = probe(sample)
            found[layer][who] = {**(told.to_json() if told else {}), "moved": moved[layer]}
        if who == "trained":
            any_state = next(iter(states.values()))
            pattern = pattern_probe(Sample(any_state, any_state, masked, one.position), one.inner())
            for layer in found:
                found[layer]["pattern_r2"] = pattern.best if pattern else None
                found[layer]["ratio"] = ratio
    return found


def _pictures(sample: Sample) -> dict[str, Any]:
    """What a person would rather look at: at the highest ratio, predictions by position, and how alike they are."""
    weights = sample.masked[..., None].double()
    mean = (sample.prediction.double() * weights).sum(0) / weights.sum(0).clamp(min=1)
    truth = sample.target.double().mean(0)
    there = sample.masked.any(0)
    mean = mean[there]
    centred = mean - mean.mean(0)
    alike = not bool(centred.abs().max() > ROUNDING * max(float(mean.abs().max()), 1e-12))
    unit = centred / centred.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    strongest = centred.pow(2).sum(0).argsort(descending=True)[:4]
    return {
        "position": torch.arange(len(there))[there].tolist(),
        "dimensions": strongest.tolist(),
        "prediction": mean[:, strongest].T.tolist(),
        "target": truth[there][:, strongest].T.tolist(),
        "similarity": None if alike else (unit @ unit.T).tolist(),
    }
