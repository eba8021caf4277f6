"""The audit of a masked model: all measures at several mask ratios, beside an untrained twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from whence.errors import UserError
from whence.experiments.instrument import OnProgress
from whence.leak.audit.checks import check, check_finite, check_targets
from whence.leak.audit.influence import content_test, gradient_share
from whence.leak.audit.measures import ROUNDING, Sample, deviation, error, leakage
from whence.leak.audit.own_model import audit_target
from whence.leak.audit.probe import FOLDS, fitted_error, pattern_r2, probe
from whence.leak.audit.shift import shift_profile, shift_test
from whence.leak.audit.target import BATCH, AuditTarget, training_mode_restored
from whence.leak.audit.untrained import TWINS, TwinComparison, compare_errors
from whence.leak.audit.verdict import ELSEWHERE, facts, judge
from whence.leak.metrics import (
    MASK_RATIOS,
    Audit,
    LayerComparison,
    LayerMeasures,
    LayerProfile,
    PathwayEffect,
    PositionMeans,
    PredictionMeasures,
    RatioMetrics,
    RatioTable,
    ShiftTest,
)
from whence.leak.pathways import Pathway, ablated, detect_pathways, priors_of, without
from whence.random import derive, preserve_rng_state


def audit(
    model: nn.Module | AuditTarget, batch: Tensor | None = None, *, ratios: Sequence[float] = MASK_RATIOS, **how: Any
) -> Audit:
    """Measure position leakage of a masked model, as `whence leak audit` does. Nothing is stored.

    Training mode and random state are restored afterwards.

    Args:
        model: a module that takes masked content and returns one prediction per token; or an `AuditTarget`, which needs
            no `batch`.
        batch: examples, (rows, tokens, features) of floats or (rows, tokens) of token ids.
        ratios: mask ratios, above 0 and up to 1.
        how: keyword arguments of `whence.leak.audit_target`; token ids require `mask`, the id of the mask token.

    Returns:
        The verdict with its reasons, and every measure. `print` and notebooks show it.

    Raises:
        whence.errors.UserError: if inputs or measures are degenerate (constant, not finite), so that no verdict is
            valid.

    Example:
        A model that adds the mean of the visible tokens to a table of positions leaks position:

        >>> class Table(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.positions = torch.nn.Parameter(torch.randn(16, 3))
        ...     def forward(self, x, masked):
        ...         visible = (~masked)[..., None].float()
        ...         mean = (x * visible).sum(1, keepdim=True) / visible.sum(1, keepdim=True).clamp(min=1)
        ...         return mean + self.positions
        >>> result = whence.audit(Table(), torch.randn(32, 16, 3), ratios=[0.5])
        >>> result.verdict.leak
        'leaky'

        Models of token ids need the id of the mask token:
        `whence.audit(model, ids, mask=tokenizer.mask_token_id)`.
    """
    if isinstance(model, AuditTarget):
        return measure_audit(model, ratios)
    if batch is None:
        raise UserError("batch: audit() requires examples, e.g. audit(model, batch).")
    return measure_audit(audit_target(model, batch, **how), ratios)


def measure_audit(
    target: AuditTarget,
    ratios: Sequence[float] = MASK_RATIOS,
    *,
    seed: int = 0,
    on_progress: OnProgress = lambda message: None,
) -> Audit:
    """The shift test, linear probes and pathway ablations at each mask ratio, beside an untrained twin.

    Training mode and random state are restored afterwards.

    Args:
        seed: determines the masks and, for models that draw random numbers, the noise.
        on_progress: called with progress messages.
    """
    check(target, ratios)
    with training_mode_restored(target.model), preserve_rng_state():
        torch.manual_seed(derive(seed, "audit"))
        return _measure(target, sorted(set(ratios)), seed, on_progress)


def _measure(target: AuditTarget, ratios: Sequence[float], seed: int, on_progress: OnProgress) -> Audit:
    targets = target.targets()
    check_targets(targets)
    last, metrics = _at_ratios(target, targets, ratios, seed, on_progress)
    check_finite(target.name, metrics)
    twin = target.untrained(0) if target.untrained else None
    untrained: RatioTable = {}
    if twin is not None:
        _, untrained = _at_ratios(twin, twin.targets(), ratios, seed, on_progress, "Untrained twin")
        check_finite(f"the untrained twin of {target.name}", untrained)
    twins = _beside_twins(target, metrics, untrained, seed, on_progress) if untrained else None
    below_one = [ratio for ratio in ratios if ratio < 1]
    middle = min(below_one, key=lambda ratio: abs(ratio - 0.5)) if below_one else ratios[-1]
    masked = target.draw_mask(middle, seed)
    profile = _profile(target, twin, middle, seed, on_progress) if target.layers else None
    shifts = {ratio: metrics[ratio].shift for ratio in below_one or ratios}
    pathways = pathway_effects(target, masked, shifts, deviation(targets), seed, on_progress)
    check_finite(target.name, {"layer": profile, "pathway": pathways})
    return Audit(
        name=target.name,
        tokens=target.tokens,
        rows=len(target.content),
        ratios=metrics,
        untrained=untrained,
        profile=profile,
        pathways=pathways,
        facts=facts(target, masked, middle, metrics[middle].pattern_r2, pathways),
        means=_position_means(last),
        verdict=judge(metrics, profile, pathways, untrained, twins, fitted=target.fitted),
    )


def _at_ratios(
    target: AuditTarget,
    targets: Tensor,
    ratios: Sequence[float],
    seed: int,
    on_progress: OnProgress,
    subject: str = "Model",
) -> tuple[Sample, RatioTable]:
    """The sample at the last ratio, and the measures at all of them."""
    samples: list[Sample] = []
    metrics: RatioTable = {}
    for ratio in ratios:
        on_progress(f"{subject}: mask ratio {ratio:g}")
        sample, measured = measure_ratio(target, partial(sample_of, target, targets, ratio, seed), ratio, seed)
        samples.append(sample)
        metrics[ratio] = measured.model_copy(
            update={
                "error": _error(target, sample),
                "pattern_r2": pattern_r2(sample, target.inner),
                "content": content_test(target, sample, seed),
                "gradient": gradient_share(target, sample.masked),
            }
        )
    return samples[-1], metrics


def measure_ratio(
    target: AuditTarget, draw: Callable[[], Sample], ratio: float, seed: int = 0
) -> tuple[Sample, RatioMetrics]:
    """The measures that runs and audits share. `draw` runs the model, a second time without its explicit priors."""
    sample, measured = measure_predictions(target, draw, ratio, seed)
    few = len(sample.places.unique()) < FOLDS  # too few for a probe, as when only the last tokens are masked
    decoded = None if measured.identical or few else probe(sample)
    without_prior = None
    if priors := priors_of(target.model):
        with without(priors):
            without_prior = measure_predictions(target, draw, ratio, seed)[1]
    return sample, RatioMetrics(**dict(measured), probe=decoded, without_prior=without_prior)


def measure_predictions(
    target: AuditTarget, draw: Callable[[], Sample], ratio: float, seed: int
) -> tuple[Sample, PredictionMeasures]:
    """The measures that a verdict is based on."""
    sample = draw()
    shift = shift_test(target, ratio, deviation(sample.target), seed)
    return sample, PredictionMeasures(**dict(leakage(sample)), shift=shift)


def sample_of(target: AuditTarget, targets: Tensor, ratio: float, seed: int) -> Sample:
    """Predictions of masked tokens, and their targets."""
    masked = target.draw_mask(ratio, seed)
    # At mask ratio 1, rows are repeated draws of a noisy model: each needs its own noise.
    batch = 1 if ratio == 1 and target.is_noisy() else BATCH
    prediction = target.predictions(target.content, masked, batch)
    return Sample(prediction, targets, masked, target.position, target.stride)


def _error(target: AuditTarget, sample: Sample) -> float:
    return fitted_error(sample) if target.fitted else error(sample)


def _beside_twins(
    target: AuditTarget, metrics: RatioTable, untrained: RatioTable, seed: int, on_progress: OnProgress
) -> TwinComparison:
    """Compare with untrained twins. Further twins are measured only if the first is not conclusive."""
    errors, first = ({ratio: measured.error for ratio, measured in table.items()} for table in (metrics, untrained))
    compared = compare_errors(errors, [first])
    if compared.different or target.untrained is None:
        return compared
    twins = [first]
    for index in range(1, TWINS):
        on_progress(f"Measuring untrained twin {index + 1} of {TWINS}")
        twin = target.untrained(index)
        if twin is not None:
            targets = twin.targets()
            twins.append({ratio: _error(twin, sample_of(twin, targets, ratio, seed)) for ratio in errors})
    return compare_errors(errors, twins)


def _profile(
    target: AuditTarget, twin: AuditTarget | None, ratio: float, seed: int, on_progress: OnProgress
) -> LayerProfile:
    """Position in the activations at masked tokens after every layer, of the model and of an untrained twin."""
    on_progress("Measuring layers")
    trained, of_pattern = _layers(target, ratio, seed)
    untrained: dict[str, LayerMeasures] = {}
    if twin is not None:
        on_progress("Measuring layers of the untrained twin")
        untrained, _ = _layers(twin, ratio, seed)
    layers = {name: LayerComparison(trained=trained[name], untrained=untrained.get(name)) for name in trained}
    return LayerProfile(ratio=ratio, pattern_r2=of_pattern, layers=layers)


def _layers(target: AuditTarget, ratio: float, seed: int) -> tuple[dict[str, LayerMeasures], float | None]:
    """Measures by layer, and the R² of the mask pattern alone."""
    masked = target.draw_mask(ratio, seed)
    samples = {
        layer: Sample(values, values, masked, target.position)
        for layer, values in target.activations(target.content, masked).items()
    }
    shifts = shift_profile(target, ratio, seed)
    layers = {layer: LayerMeasures(shift=shifts[layer], probe=probe(sample)) for layer, sample in samples.items()}
    return layers, pattern_r2(next(iter(samples.values())), target.inner)


def _position_means(sample: Sample) -> PositionMeans:
    weights = sample.masked[..., None].double()
    mean = (sample.prediction.double() * weights).sum(0) / weights.sum(0).clamp(min=1)
    truth = sample.target.double().mean(0)
    there = sample.masked.any(0)
    mean = mean[there]
    centered = mean - mean.mean(0)
    equal = not bool(centered.abs().max() > ROUNDING * max(float(mean.abs().max()), 1e-12))
    unit = centered / centered.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    strongest = centered.pow(2).sum(0).argsort(descending=True)[:4]
    return PositionMeans(
        positions=torch.arange(len(there))[there].tolist(),
        dimensions=strongest.tolist(),
        prediction=mean[:, strongest].T.tolist(),
        target=truth[there][:, strongest].T.tolist(),
        similarity=None if equal else (unit @ unit.T).tolist(),
    )


def pathway_effects(
    target: AuditTarget,
    masked: Tensor,
    tests: Mapping[float, ShiftTest],
    targets: float,
    seed: int,
    on_progress: OnProgress,
) -> list[PathwayEffect]:
    """Shift sensitivity without each detected pathway, and with each as the only one.

    Rows, placements and the prediction variance of the shares are those of the shift test with all pathways. Every
    value is the mean over mask ratios.

    Args:
        tests: the shift test with all pathways, by mask ratio.
        targets: standard deviation of the targets.

    Returns:
        One row per pathway, the strongest first. The shift sensitivity that remains with all pathways ablated has a row
        of its own, and is subtracted from `alone` of the others.
    """
    on_progress("Detecting pathways")
    pathways = detect_pathways(target, masked)
    with_all = _mean(tests)
    measured = {frozenset[int](): with_all}

    def sensitivity(without: Sequence[Pathway], message: str) -> float:
        key = frozenset(map(id, without))
        if key not in measured:  # of two pathways, ablating one leaves the other alone
            on_progress(message)
            with ablated(without):
                measured[key] = _mean(
                    {r: shift_test(target, r, targets, seed, test.prediction_std) for r, test in tests.items()}
                )
        return measured[key]

    rest = sensitivity(pathways, "Ablating all pathways")
    effects = [
        PathwayEffect(
            name=pathway.name,
            where=pathway.where,
            note=pathway.note,
            with_all=with_all,
            without=sensitivity([pathway], f"Ablating {pathway.name}"),
            alone=max(
                0.0,
                sensitivity([p for p in pathways if p is not pathway], f"Ablating all but {pathway.name}") - rest,
            ),
        )
        for pathway in pathways
    ]
    if rest > ROUNDING**2:
        note = "with all detected pathways ablated"
        effects.append(PathwayEffect(name=ELSEWHERE, where="", note=note, with_all=with_all, without=None, alone=rest))
    return sorted(effects, key=lambda effect: -effect.alone)


def _mean(tests: Mapping[float, ShiftTest]) -> float:
    return sum(test.sensitivity for test in tests.values()) / len(tests)
