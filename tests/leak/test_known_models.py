"""Verdict and pathways of models whose answer is known."""

from __future__ import annotations

import pytest
import torch

from tests.leak.known_models import KNOWN, Known
from whence.leak.auditing import audit

SEEDS = range(5)


def check(known: Known, seed: int) -> None:
    torch.set_num_threads(1)
    verdict = audit(known.build(seed), (0.5, 0.9, 1.0)).verdict
    assert verdict.outcome == known.outcome, verdict.sentences
    assert set(verdict.entrances) == known.pathways, verdict.sentences
    assert not known.note or known.note in verdict.notes, verdict.sentences


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_verdict_and_pathways(known: Known) -> None:
    check(known, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[1:])
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_verdict_and_pathways_over_seeds(known: Known, seed: int) -> None:
    check(known, seed)
