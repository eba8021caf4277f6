"""The probe finds what is there, in whatever shape, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from whence.errors import UserError
from whence.leak.audit.measures import Sample
from whence.leak.audit.probe import STRENGTHS, _ridge, decode, fitted_error, pattern_r2, probe
from whence.leak.masks import draw


def features(told: torch.Tensor, noise: float, seed: int = 0, dims: int = 6) -> torch.Tensor:
    place = torch.Generator().manual_seed(seed)
    x = noise * torch.randn(len(told), dims, generator=place, dtype=torch.float64)
    return x + told.double()[:, None] * torch.randn(dims, generator=place, dtype=torch.float64)


ROWS = torch.arange(30).repeat_interleave(16)
PLACES = torch.arange(16).repeat(30)


def test_a_line_is_read_off() -> None:
    found = decode(features(PLACES, 0.5), PLACES, ROWS)
    assert found is not None
    assert found.r2 > 0.95
    assert found.mae < 1
    assert found.p == 0.01
    assert found.control < 0.3, "a line cannot learn a relabelling by heart"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("quadratic", (PLACES - 7.5) ** 2 / 20),
        ("edge at start", 3.0 * (PLACES < 2)),
        ("edge at end", 3.0 * (PLACES > 13)),
    ],
)
def test_shapes_that_a_line_misses(name: str, told: torch.Tensor) -> None:
    found = decode(features(told, 0.3), PLACES, ROWS)
    assert found is not None
    assert found.shape == name
    assert found.best > 0.7
    assert found.r2 < found.best - 0.1
    assert found.p == 0.01


def test_where_nothing_leaks_p_is_uniform() -> None:
    """A probe that chooses the best of four shapes must pay for the choice."""
    found = [decode(features(torch.zeros(480), 1.0, seed), PLACES, ROWS) for seed in range(60)]
    p = np.array([f.p for f in found if f])
    assert (p <= 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(p))
    assert 0.3 < p.mean() < 0.7
    assert max(f.best for f in found if f) < 0.1


def test_on_smooth_data_p_is_uniform() -> None:
    """Neighbours that resemble each other are no leak: slow noise, the same everywhere on a ring."""
    p = []
    for seed in range(60):
        place = torch.Generator().manual_seed(seed)
        noise = torch.randn(30, 16, 6, generator=place, dtype=torch.float64)
        smooth = sum(noise.roll(by, 1) for by in range(6))
        found = decode(smooth.flatten(0, 1), PLACES, ROWS)  # type: ignore[union-attr]
        assert found is not None
        p.append(found.p)
    assert (np.array(p) <= 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(p))


def test_rows_are_not_split_between_training_and_test() -> None:
    """Features that name the row predict nothing in other rows, though they would in a row that is split."""
    rows = torch.arange(6).repeat_interleave(16)
    places = torch.arange(16).repeat(6)
    x = torch.nn.functional.one_hot(rows).double() + 0.01 * torch.randn(96, 6, dtype=torch.float64)
    found = decode(x, places, rows)
    assert found is not None
    assert found.best < 0.2


@pytest.mark.parametrize(("n", "d"), [(50, 20), (30, 80)])
def test_ridge_is_the_closed_form_of_one_of_its_penalties(n: int, d: int) -> None:
    place = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=place, dtype=torch.float64)
    y = x[:, :3] + torch.randn(n, 3, generator=place, dtype=torch.float64)
    found = _ridge(x, y)
    for column in range(3):
        solutions = [
            torch.linalg.solve(x.T @ x + s * n * torch.eye(d, dtype=torch.float64), x.T @ y[:, column])
            for s in STRENGTHS
        ]
        assert min(float((solution - found[:, column]).abs().max()) for solution in solutions) < 1e-10


def test_the_penalty_is_the_one_that_leaving_one_out_prefers() -> None:
    """GCV against its definition, with the hat matrix written out."""
    place = torch.Generator().manual_seed(3)
    x = torch.randn(40, 12, generator=place, dtype=torch.float64)
    y = x[:, :1] + 2 * torch.randn(40, 1, generator=place, dtype=torch.float64)
    scores = []
    for s in STRENGTHS:
        hat = x @ torch.linalg.solve(x.T @ x + s * 40 * torch.eye(12, dtype=torch.float64), x.T)
        scores.append(float(((y - hat @ y) ** 2).sum() / (40 - 1 - hat.trace()) ** 2))
    best = STRENGTHS[int(np.argmin(scores))]
    expected = torch.linalg.solve(x.T @ x + best * 40 * torch.eye(12, dtype=torch.float64), x.T @ y)
    assert torch.allclose(_ridge(x, y), expected, atol=1e-10)


def test_constant_features_are_undefined_and_few_positions_refused() -> None:
    assert decode(torch.ones(480, 3, dtype=torch.float64), PLACES, ROWS) is None
    with pytest.raises(UserError, match="expected 5 or more masked positions"):
        decode(
            torch.randn(40, 3, dtype=torch.float64), torch.arange(4).repeat(10), torch.arange(10).repeat_interleave(4)
        )


def test_the_mask_pattern_alone_tells_much() -> None:
    masked = draw(torch.Generator().manual_seed(0), 60, 24, 0.5)
    said = torch.randn(60, 24, 3, generator=torch.Generator().manual_seed(1))
    sample = Sample(said, said, masked, torch.arange(24))
    pattern, nothing = pattern_r2(sample), probe(sample)
    assert pattern is not None
    assert nothing is not None
    assert pattern > 0.8
    assert nothing.best < 0.1
    everything = Sample(said, said, torch.ones_like(masked), torch.arange(24))
    assert pattern_r2(everything) is None


def test_fitted_error_forgives_a_linear_map_and_nothing_else() -> None:
    place = torch.Generator().manual_seed(0)
    target = torch.randn(60, 24, 4, generator=place)
    masked = draw(place, 60, 24, 0.5)
    turned = target @ torch.randn(4, 4, generator=place) + 7
    assert fitted_error(Sample(turned, target, masked, torch.arange(24))) < 0.01
    noise = torch.randn(60, 24, 4, generator=place)
    assert fitted_error(Sample(noise, target, masked, torch.arange(24))) == pytest.approx(1, abs=0.05)
