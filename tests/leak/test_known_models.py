"""Verdict and pathways of models whose answer is known."""

from __future__ import annotations

import pytest
import torch

from tests.leak.known_models import KNOWN, Known, WithTable
from tests.leak.known_models_later import LATER
from tests.leak.power import PARTLY, WHOLLY, RowNoise, at_power, planted, verdict
from whence.leak.audit.auditing import measure_audit

SEEDS = range(5)


def check(known: Known, seed: int) -> None:
    torch.set_num_threads(1)
    verdict = measure_audit(known.build(seed), (0.5, 0.9, 1.0)).verdict
    assert verdict.outcome in known.outcome.split(" or "), verdict.sentences
    assert set(verdict.pathways) == known.pathways, verdict.sentences
    assert not known.note or known.note in verdict.notes, verdict.sentences


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_verdict_and_pathways(known: Known) -> None:
    check(known, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("known", LATER, ids=lambda known: known.name)
def test_the_second_dozen(known: Known, seed: int) -> None:
    check(known, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[1:])
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_verdict_and_pathways_over_seeds(known: Known, seed: int) -> None:
    check(known, seed)


@pytest.mark.parametrize(
    ("kind", "share", "ratios", "leak"),
    [
        (WithTable, 0.01, PARTLY, "leaky"),
        (WithTable, 0.002, PARTLY, "traces"),
        (WithTable, 2e-4, WHOLLY, "leaky"),
        (RowNoise, 2e-4, WHOLLY, "leaky"),
        (RowNoise, 0.0, WHOLLY, "clean"),
    ],
)
def test_the_power_that_the_docs_state(
    kind: type[WithTable], share: float, ratios: tuple[float, ...], leak: str
) -> None:
    assert [verdict(planted(kind, share, seed), ratios, seed) for seed in range(3)] == [leak] * 3


def test_power_is_read_between_levels() -> None:
    assert at_power((0.01, 0.04), (0.0, 1.0), 0.5) == pytest.approx(0.02)
    assert at_power((0.01, 0.04), (0.0, 0.4), 0.5) is None
