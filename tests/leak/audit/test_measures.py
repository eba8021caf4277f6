"""Measures of leakage against plain numpy, and what must be undefined instead of 0."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from whence.errors import UserError
from whence.leak.audit.measures import (
    SHUFFLES,
    Sample,
    between_positions,
    correlation,
    error,
    eta2,
    leakage,
    shuffled,
    similarity,
)
from whence.leak.masks import draw


def made(rows: int = 40, tokens: int = 16, features: int = 3, ratio: float = 0.5, leak: float = 0.0) -> Sample:
    place = torch.Generator().manual_seed(1)
    target = torch.randn(rows, tokens, features, generator=place)
    position = torch.arange(tokens)
    said = 0.5 * target + torch.randn(rows, tokens, features, generator=place)
    return Sample(said + leak * position[:, None], target, draw(place, rows, tokens, ratio), position)


def flat(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    return sample.prediction[sample.masked].double().numpy(), sample.places.double().numpy()


@pytest.mark.parametrize("leak", [0.0, 0.1, -2.0])
def test_correlation_is_numpys(leak: float) -> None:
    sample = made(leak=leak)
    values, places = flat(sample)
    expected = np.mean([abs(np.corrcoef(column, places)[0, 1]) for column in values.T])
    assert correlation(torch.tensor(values), torch.tensor(places)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("places", "expected"), [(5, 0.43), (16, 0.21), (32, 0.14)])
def test_chance_correlation_of_one_prediction_per_place(places: int, expected: float) -> None:
    """Known from theory: with few places even noise correlates."""
    values = torch.randn(places, 400, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = correlation(values, shuffled(torch.arange(places), torch.zeros(places, dtype=torch.long), SHUFFLES))
    assert found == pytest.approx(expected, abs=0.02)


def test_shuffling_turns_every_row_as_a_ring() -> None:
    """Neighbours stay neighbours: what is smooth stays smooth."""
    rows = torch.tensor([0, 0, 0, 1, 1, 2])
    places = torch.tensor([3, 5, 9, 1, 2, 7])
    columns = shuffled(places, rows, 60)
    assert columns.min() == 1
    assert columns.max() == 9
    for column in columns.unbind(1):
        turns = ((column - places) % 9).long()
        assert [len(turns[rows == r].unique()) for r in range(3)] == [1, 1, 1]
    assert len({tuple(column.tolist()) for column in columns.unbind(1)}) > 20


def test_a_single_row_is_shuffled_at_random() -> None:
    columns = shuffled(torch.arange(12), torch.zeros(12, dtype=torch.long), 30)
    assert all(sorted(column.tolist()) == list(range(12)) for column in columns.unbind(1))
    assert len({tuple(column.tolist()) for column in columns.unbind(1)}) > 20


def test_eta2_by_hand() -> None:
    sample = made(leak=0.3)
    values, places = flat(sample)
    within = total = 0.0
    for column in values.T:
        total += ((column - column.mean()) ** 2).sum()
        for place in np.unique(places):
            group = column[places == place]
            within += ((group - group.mean()) ** 2).sum()
    n, k = len(values), len(np.unique(places))
    expected = (total - within - (k - 1) * within / (n - k)) / total
    assert eta2(torch.tensor(values), torch.tensor(places)) == pytest.approx(expected, abs=1e-12)


def test_eta2_is_unbiased_where_nothing_leaks() -> None:
    found = []
    for seed in range(60):
        values = torch.randn(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        found.append(eta2(values, torch.arange(200) % 16))
    assert abs(np.mean(found)) < 3 * np.std(found) / np.sqrt(len(found)) + 1e-3


@pytest.mark.parametrize("centred", [False, True])
def test_similarity_pair_by_pair(centred: bool) -> None:
    sample = made(rows=6)
    mean = sample.prediction[sample.masked].double().mean(0) if centred else torch.zeros(3, dtype=torch.float64)
    per_row = []
    for said, masked in zip(sample.prediction.double(), sample.masked, strict=True):
        vectors = (said[masked] - mean).numpy()
        pairs = itertools.combinations(vectors, 2)
        per_row.append(np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]))
    assert similarity(sample, centered=centred) == pytest.approx(np.mean(per_row), abs=1e-10)


def test_error_of_the_mean_is_one_and_of_the_truth_zero() -> None:
    sample = made()
    mean = sample.target[sample.masked].mean(0)
    assert error(Sample(mean.expand_as(sample.target), sample.target, sample.masked, sample.position)) == pytest.approx(
        1
    )
    assert error(Sample(sample.target, sample.target, sample.masked, sample.position)) == 0


def test_spread_is_within_rows() -> None:
    """Rows that differ from each other, and are constant in themselves, have none."""
    said = torch.randn(5, 1, 3).expand(5, 12, 3)
    sample = Sample(said, torch.randn(5, 12, 3), torch.ones(5, 12, dtype=torch.bool), torch.arange(12))
    assert spread(sample) == pytest.approx(0, abs=1e-7)


def spread(sample: Sample) -> float:
    return between_positions(sample).value ** 0.5


def all_masked(said: Tensor, stride: int = 1) -> Sample:
    rows, tokens, features = said.shape
    target = torch.randn(rows, tokens, features, generator=torch.Generator().manual_seed(5))
    gone = torch.ones(rows, tokens, dtype=torch.bool)
    return Sample(said, target, gone, torch.arange(tokens) // stride, stride)


def test_noise_is_no_spread() -> None:
    """With everything masked, only what all rows agree on can be position."""
    zero = 0
    for seed in range(40):
        noise = torch.randn(64, 24, 3, generator=torch.Generator().manual_seed(seed))
        zero += spread(all_masked(noise)) == 0
        assert not leakage(all_masked(noise)).identical
    assert zero == 40
    place, told = torch.Generator().manual_seed(0), 0.3 * torch.linspace(-1, 1, 24)[:, None]
    found = [spread(all_masked(torch.randn(64, 24, 3, generator=place) + told)) for _ in range(5)]
    assert np.mean(found) == pytest.approx(float(told.std()), rel=0.1)


def test_channels_of_one_moment_may_differ() -> None:
    """Several tokens per step of position: what tells them apart is no position."""
    channels = torch.randn(1, 4, 2).repeat(8, 6, 1)
    assert spread(all_masked(channels, stride=4)) == pytest.approx(0, abs=1e-7)
    assert spread(all_masked(channels[:1])) > 0.1
    moving = channels + torch.linspace(0, 1, 6).repeat_interleave(4)[:, None]
    assert spread(all_masked(moving[:1], stride=4)) > 0.1


def test_identical_predictions_are_undefined() -> None:
    masked = torch.ones(8, 12, dtype=torch.bool)
    found = leakage(Sample(torch.ones(8, 12, 2), torch.randn(8, 12, 2), masked, torch.arange(12)))
    assert found.identical
    assert found.position_variance == 0
    assert all(
        getattr(found, name) is None for name in ("correlation", "correlation_chance", "eta2", "similarity_centered")
    )
    assert found.similarity == pytest.approx(1)


def test_with_everything_masked_the_variance_counts_and_not_its_share() -> None:
    said = torch.linspace(0, 1e-2, 12)[:, None].expand(8, 12, 2)
    sample = Sample(said, torch.randn(8, 12, 2), torch.ones(8, 12, dtype=torch.bool), torch.arange(12))
    found = leakage(sample)
    assert sample.single
    assert found.eta2 is None, "any difference at all would be explained by position"
    assert 0 < found.position_variance < 1e-4
    assert found.correlation == pytest.approx(1)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (torch.full((4, 12, 2), torch.nan), "expected finite predictions"),
        (torch.zeros(4, 11, 2), "expected one prediction per token"),
        (torch.zeros(4, 12), "expected one prediction per token"),
        (torch.zeros(4, 12, 1), "expected 2 outputs per token, got 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(said: Tensor, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Sample(said, torch.randn(4, 12, 2), torch.ones(4, 12, dtype=torch.bool), torch.arange(12))


def test_constant_targets_are_refused() -> None:
    masked = torch.ones(4, 12, dtype=torch.bool)
    with pytest.raises(UserError, match="expected targets that vary"):
        leakage(Sample(torch.randn(4, 12, 2), torch.ones(4, 12, 2), masked, torch.arange(12)))
