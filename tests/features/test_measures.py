"""Measures against a second computation, and on features whose relation to position is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from whence.features.evals.measures import FEW, fidelity, measure, recovery, retention, stability, tally
from whence.features.sae.parts import MASKS


class Known:
    """Codes are given: column by column, whatever the states say they are."""

    def __init__(self, codes: Tensor, directions: Tensor) -> None:
        self.table, self.directions = codes, directions
        self.size, self.width = directions.shape
        self.context = 16

    def codes(self, states: Tensor, positions: Tensor, lifted: bool = False) -> Tensor:
        return self.table[states[:, 0].long()]

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        return codes @ self.directions


def numbered(n: int) -> tuple[Tensor, Tensor]:
    """States whose first number says which they are."""
    drawn = torch.Generator().manual_seed(0)
    states = torch.randn(n, 4, generator=drawn)
    states[:, 0] = torch.arange(n)
    return states, torch.randint(16, (n,), generator=drawn)


def test_fvu_and_l0_in_one_go() -> None:
    states, positions = numbered(700)
    drawn = torch.Generator().manual_seed(4)
    codes = (torch.rand(700, 6, generator=drawn) - 0.5).relu()
    known = Known(codes, torch.randn(6, 4, generator=drawn))
    found = tally(known, [(states[:300], positions[:300]), (states[300:], positions[300:])])
    exact = states.double()
    error = (exact - codes.double() @ known.directions.double()).square().sum()
    variance = (exact - exact.mean(0)).square().sum()
    assert found.fvu == pytest.approx(float(error / variance), rel=1e-5)
    assert found.l0 == pytest.approx(float((codes > 0).sum() / 700))
    mean = Known(torch.ones(700, 1), states.mean(0, keepdim=True))
    assert tally(mean, [(states, positions)]).fvu == pytest.approx(1.0, rel=1e-6), "the mean explains nothing"


def test_fidelity_is_one_for_positions_and_unbiased_for_noise() -> None:
    states, positions = numbered(4000)
    drawn = torch.Generator().manual_seed(1)
    noise = torch.rand(4000, 400, generator=drawn)
    half = torch.cat(
        [(positions[:, None] % 2 + 0.0), (positions[:, None] % 2) + torch.randn(4000, 1, generator=drawn) / 2], 1
    )
    codes = torch.cat([half, noise], 1)
    codes = codes - codes.min()  # shifting changes no variance
    found = fidelity(tally(Known(codes, torch.zeros(402, 4)), [(states, positions)]))
    assert found[0] == pytest.approx(1.0, abs=1e-5)
    assert found[1] == pytest.approx(0.5, abs=0.03), "variance ¼ by position beside variance ¼ of noise"
    noisy = found[2:]
    assert abs(float(noisy.mean())) < 4 * float(noisy.std()) / 20, "no more than chance, on average over 400 features"
    assert float(noisy.std()) < 0.005


def test_features_that_are_hardly_ever_active_say_nothing() -> None:
    states, positions = numbered(1000)
    codes = torch.zeros(1000, 2)
    codes[: FEW - 1, 0] = 1
    codes[:FEW, 1] = 1
    assert len(fidelity(tally(Known(codes, torch.zeros(2, 4)), [(states, positions)]))) == 1


def test_retention_is_agreement_with_ones_own_mask() -> None:
    states, positions = numbered(6000)
    drawn = torch.Generator().manual_seed(2)
    assigned = (torch.rand(16, 50, generator=drawn) < 0.5).float()
    agree = assigned[positions] + 0.2 * torch.rand(6000, 50, generator=drawn)
    ignore = torch.rand(6000, 50, generator=drawn)
    for codes, low, high in ((agree, 0.99, 1.0), (ignore, -0.2, 0.2)):
        found = retention(tally(Known(codes, torch.zeros(50, 4)), [(states, positions)]), assigned)
        assert low <= found["median"] <= high
        assert abs(found["chance"]) < 0.2
        assert found["features"] == 50


def test_chance_is_about_nothing_for_masks_that_are_laid_out_in_order() -> None:
    states, positions = numbered(6000)
    for mask in ("gaussian", "hard:together=true", "static_slice"):
        assigned = MASKS.choose(mask).build(context=16, size=64).table(0)
        found = retention(tally(Known(assigned[positions], torch.zeros(64, 4)), [(states, positions)]), assigned)
        assert found["median"] == pytest.approx(1.0, abs=1e-4)
        assert abs(found["chance"]) < 0.4, mask


def test_masks_are_lifted_where_there_are_masks() -> None:
    states, positions = numbered(400)

    class Masked(Known):
        def codes(self, states: Tensor, positions: Tensor, lifted: bool = False) -> Tensor:
            return super().codes(states, positions) * (1.0 if lifted else (positions[:, None] < 8))

    known = Masked(1 + 0.2 * torch.rand(400, 3, generator=torch.Generator().manual_seed(0)), torch.randn(3, 4))
    plain, lifted = measure(known, [(states, positions)]), measure(known, [(states, positions)], torch.ones(16, 3))
    assert plain["lifted"]["l0"] == plain["l0"] == lifted["l0"]
    assert lifted["lifted"]["l0"] == 3
    assert lifted["fidelity"]["bound"] == 3, "by the mask"
    assert lifted["lifted"]["fidelity"]["bound"] == 0, "not by themselves"


def test_recovery_finds_turned_and_reordered_directions_and_uses_each_once() -> None:
    drawn = torch.Generator().manual_seed(3)
    true = torch.randn(20, 30, generator=drawn)
    learned = torch.cat([5 * true[torch.randperm(20, generator=drawn)], torch.randn(7, 30, generator=drawn)])
    found = recovery(learned, {"free": true[:12], "bound": true[12:]})
    assert found["free"]["matched"] == pytest.approx(1.0)
    assert found["bound"]["found"] == 1
    collapsed = recovery(true[:1].expand(20, -1), {"all": true[:1].expand(20, -1) + 0.0})
    assert collapsed["all"]["matched"] == pytest.approx(1.0)
    one = recovery(torch.cat([true[:1], torch.randn(19, 30, generator=drawn)]), {"all": true[:1].expand(20, -1)})
    assert one["all"]["largest"] == pytest.approx(1.0)
    assert one["all"]["matched"] < 0.5, "one learned direction cannot stand for twenty"
    assert stability(true, true.flip(0)) == pytest.approx(1.0)
    few = recovery(true[:5], {"all": true})
    assert few["all"]["found"] == 0.25, "what nothing is left for counts as not found"
