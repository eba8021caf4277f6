"""Look at a masked model from all sides: what its predictions ride on, and where position comes in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor

from whence.errors import UserError
from whence.leak import RATIOS, shares
from whence.leak.influence import content_effect, embedded, gradient_share
from whence.leak.look import look
from whence.leak.measures import ROUNDING, Sample, deviation
from whence.leak.probe import FOLDS, fitted_error, pattern_probe, probe
from whence.leak.shape import AuditShape
from whence.leak.shift import shift_effect, shift_profile
from whence.leak.sources import SOURCES
from whence.leak.sources.additive_encoding import AdditiveEncoding
from whence.leak.sources.base import Entrance, all_shut
from whence.leak.subject import Subject
from whence.leak.verdict import ELSEWHERE, Verdict, judge
from whence.models.taps import taps

Tell = Callable[[str], None]
LONGEST_REASON = 200


@dataclass(frozen=True)
class Audit:
    """All that was found, as JSON shows it."""

    name: str
    tokens: int
    rows: int
    ratios: dict[str, dict[str, Any]]
    """By share hidden: measures of the predictions"""
    untrained: dict[str, dict[str, Any]]
    """The same of the model before training; empty where there is no such model"""
    profile: dict[str, dict[str, Any]]
    """By layer: what its hidden states tell of position, trained and not"""
    sources: list[dict[str, Any]]
    """Every entrance found: what is left without it, and what it lets in alone"""
    facts: list[str]
    """What stands at hidden tokens before the first block"""
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
    subject: Subject, ratios: Sequence[float] = RATIOS, *, seed: int = 0, tell: Tell = lambda words: None
) -> Audit:
    """`tell` hears what is being done. The model is left as it was."""
    _check(subject, ratios)
    training = [(module, module.training) for module in subject.model.modules()]
    try:
        return _audit(subject, sorted(set(ratios)), seed, tell)
    finally:
        for module, flag in training:
            module.training = flag


def _audit(subject: Subject, ratios: Sequence[float], seed: int, tell: Tell) -> Audit:
    tell("what would be right")
    targets = subject.targets()
    looked = {ratio: _look(subject, targets, ratio, seed, tell) for ratio in ratios}
    found = {f"{ratio:g}": measured for ratio, (_, measured) in looked.items()}
    twin = subject.untrained() if subject.untrained else None
    beside = twin.targets() if twin else targets
    before = {f"{r:g}": _look(twin, beside, r, seed, tell, who="untrained, ")[1] for r in ratios} if twin else {}
    between = [ratio for ratio in ratios if ratio < 1]
    middle = min(between, key=lambda ratio: abs(ratio - 0.5)) if between else ratios[-1]
    profile = _profile(subject, twin, middle, seed, tell)
    sources = _sources(subject, targets, between or ratios, middle, seed, tell)
    verdict = judge(found, profile, sources, fitted=subject.fitted)
    return Audit(
        subject.name,
        subject.tokens,
        len(subject.content),
        found,
        before,
        profile,
        sources,
        [*_facts(subject, subject.hide(middle, seed)), *_pattern(found[f"{middle:g}"], middle)],
        _pictures(looked[ratios[-1]][0]),
        verdict,
    )


def _check(subject: Subject, ratios: Sequence[float]) -> None:
    try:
        shares(ratios)
    except ValueError as error:
        raise UserError(f"ratios: {error}", field="ratios") from None
    if subject.content.is_floating_point() and not torch.isfinite(subject.content).all():
        raise UserError("data: there are values that are not numbers. Allowed: finite values.", field="data")
    inner = range(*subject.inner().indices(subject.tokens))
    if len(inner) // subject.stride < 2 * FOLDS:
        raise UserError(
            f"positions: {len(inner) // subject.stride} can be hidden, too few for a {FOLDS}-fold cross-validation. "
            f"Allowed: {2 * FOLDS} or more.",
            field="positions",
        )
    if len(subject.content) < FOLDS:
        raise UserError(
            f"data: {len(subject.content)} examples are too few for {FOLDS} parts of a cross-validation. "
            f"Allowed: {FOLDS} or more.",
            field="data",
        )


def _look(
    subject: Subject, targets: Tensor, ratio: float, seed: int, tell: Tell, who: str = ""
) -> tuple[Sample, dict[str, Any]]:
    tell(f"{who}{100 * ratio:g} % hidden")
    hidden = subject.hide(ratio, seed)

    def sampled() -> Sample:
        return Sample(subject.said(subject.content, hidden), targets, hidden, subject.position, subject.stride)

    sample, found = look(subject, sampled, ratio, seed)
    if subject.fitted:
        found["error"] = fitted_error(sample)
    pattern = pattern_probe(sample, subject.inner())
    return sample, {
        **found,
        "pattern_r2": pattern.best if pattern else None,
        "content": content_effect(subject, sample, seed),
        "gradient": gradient_share(subject, hidden),
    }


def _profile(subject: Subject, twin: Subject | None, ratio: float, seed: int, tell: Tell) -> dict[str, dict[str, Any]]:
    """After every layer: is position there? At hidden tokens, beside the untrained twin."""
    found: dict[str, dict[str, Any]] = {layer: {} for layer in subject.layers}
    if not found:
        return {}
    for who, one in (("trained", subject), ("untrained", twin)):
        if one is None:
            continue
        tell(f"layer by layer, {who}")
        hidden = one.hide(ratio, seed)
        states = one.states(one.content, hidden)
        moved = shift_profile(one, ratio, seed)
        for layer, state in states.items():
            sample = Sample(state, state, hidden, one.position)
            told = probe(sample)
            found[layer][who] = {**(told.to_json() if told else {}), "moved": moved[layer]}
        if who == "trained":
            any_state = next(iter(states.values()))
            pattern = pattern_probe(Sample(any_state, any_state, hidden, one.position), one.inner())
            for layer in found:
                found[layer]["pattern_r2"] = pattern.best if pattern else None
                found[layer]["ratio"] = ratio
    return found


def _sources(
    subject: Subject, targets: Tensor, ratios: Sequence[float], middle: float, seed: int, tell: Tell
) -> list[dict[str, Any]]:
    """Each entrance shut in turn, and each left open alone, less what comes in with all of them shut."""
    tell("looking for entrances")
    hidden = subject.hide(middle, seed)
    entrances = [entrance for source in SOURCES for entrance in source().find(subject, hidden)]
    few, size = subject.with_rows(max(FOLDS, len(subject.content) // 2)), deviation(targets)
    usual = {ratio: shift_effect(few, ratio, size, seed) for ratio in ratios}

    def leak(shut: Sequence[Entrance]) -> float:
        with all_shut(shut):
            moved = [shift_effect(few, ratio, size, seed, usual[ratio]["own"])["of_prediction"] for ratio in ratios]
        return sum(moved) / len(moved)

    whole = sum(found["of_prediction"] for found in usual.values()) / len(usual)
    tell("with all entrances shut")
    rest = leak(entrances)
    table = []
    for entrance in entrances:
        tell(f"without {entrance.name}")
        others = [other for other in entrances if other is not entrance]
        table.append(
            {
                "name": entrance.name,
                "where": entrance.where,
                "note": entrance.note,
                "with_all": whole,
                "without": leak([entrance]),
                "alone": max(0.0, leak(others) - rest),
            }
        )
    if rest > ROUNDING**2:
        table.append(
            {
                "name": ELSEWHERE,
                "where": "",
                "note": "what is left with all of the others shut",
                "with_all": whole,
                "without": None,
                "alone": rest,
            }
        )
    return sorted(table, key=lambda row: -row["alone"])


def _facts(subject: Subject, hidden: Tensor) -> list[str]:
    """Are mask tokens alike, and what do encodings add to them?"""
    few, gone = subject.with_rows(8), hidden[:8]
    told = []
    if subject.masked is not None:
        with taps(subject.model, [subject.masked], attention=False) as seen:
            few.said(few.content, gone)
        tokens = seen.hidden[subject.masked]
        if isinstance(tokens, Tensor) and tokens.shape[:2] == gone.shape:
            alike = torch.allclose(tokens[gone], tokens[gone][:1], atol=1e-6)
            told.append(
                f"Mask tokens are {'all alike' if alike else 'not alike'} before anything tells them their place."
            )
    additive = AdditiveEncoding().find(few, gone)
    if additive and subject.layers:
        open_, shut = embedded(few, gone), None
        with all_shut(additive):
            shut = embedded(few, gone)
        if open_ is not None and shut is not None and open_.shape[:2] == gone.shape:
            added = (open_ - shut).norm(dim=-1)
            at = [f"{float(added[where].mean()):.2g}" for where in (gone, ~gone)]
            told.append(
                f"Encodings change embedded tokens by a norm of {at[0]} where they are hidden, {at[1]} where visible."
            )
    return told


def _pattern(found: Mapping[str, Any], ratio: float) -> list[str]:
    told = found["pattern_r2"]
    if told is None:
        return []
    return [
        f"Which tokens are hidden tells position with R² {told:.2f} by itself ({100 * ratio:g} % hidden): "
        "a model may see that much without a leak."
    ]


def _pictures(sample: Sample) -> dict[str, Any]:
    """What a person would rather look at: at the highest ratio, predictions by position, and how alike they are."""
    weights = sample.hidden[..., None].double()
    mean = (sample.prediction.double() * weights).sum(0) / weights.sum(0).clamp(min=1)
    truth = sample.target.double().mean(0)
    there = sample.hidden.any(0)
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
