"""Measures against a second computation, and on features whose relation to position is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from whence.features.evals.measures import (
    FEW,
    dictionary_metrics,
    feature_statistics,
    position_selectivity,
    recovery,
    retention,
    seed_stability,
)
from whence.features.sae.dictionary import Shape
from whence.features.sae.masks import MASKS
from whence.models.init import initialise


class Known:
    """Codes are given: column by column, whatever the states say they are."""

    def __init__(self, codes: Tensor, directions: Tensor) -> None:
        self.table, self.directions = codes, directions
        self.d_sae, self.d_in = directions.shape
        self.context_size = 16

    def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
        return self.table[activations[:, 0].long()]

    def decode(self, codes: Tensor, positions: Tensor) -> Tensor:
        return codes @ self.directions


def numbered(n: int) -> tuple[Tensor, Tensor]:
    """States whose first number says which they are."""
    drawn = torch.Generator().manual_seed(0)
    activations = torch.randn(n, 4, generator=drawn)
    activations[:, 0] = torch.arange(n)
    return activations, torch.randint(16, (n,), generator=drawn)


def test_fvu_and_l0_in_one_go() -> None:
    activations, positions = numbered(700)
    drawn = torch.Generator().manual_seed(4)
    codes = (torch.rand(700, 6, generator=drawn) - 0.5).relu()
    known = Known(codes, torch.randn(6, 4, generator=drawn))
    found = feature_statistics(known, [(activations[:300], positions[:300]), (activations[300:], positions[300:])])
    exact = activations.double()
    error = (exact - codes.double() @ known.directions.double()).square().sum()
    variance = (exact - exact.mean(0)).square().sum()
    assert found.fvu == pytest.approx(float(error / variance), rel=1e-5)
    assert found.l0 == pytest.approx(float((codes > 0).sum() / 700))
    mean = Known(torch.ones(700, 1), activations.mean(0, keepdim=True))
    assert feature_statistics(mean, [(activations, positions)]).fvu == pytest.approx(1.0, rel=1e-6), (
        "the mean explains nothing"
    )


def test_fidelity_is_one_for_positions_and_unbiased_for_noise() -> None:
    activations, positions = numbered(4000)
    drawn = torch.Generator().manual_seed(1)
    noise = torch.rand(4000, 400, generator=drawn)
    half = torch.cat(
        [(positions[:, None] % 2 + 0.0), (positions[:, None] % 2) + torch.randn(4000, 1, generator=drawn) / 2], 1
    )
    codes = torch.cat([half, noise], 1)
    codes = codes - codes.min()  # shifting changes no variance
    found = position_selectivity(feature_statistics(Known(codes, torch.zeros(402, 4)), [(activations, positions)]))
    assert found[0] == pytest.approx(1.0, abs=1e-5)
    assert found[1] == pytest.approx(0.5, abs=0.03), "variance ¼ by position beside variance ¼ of noise"
    noisy = found[2:]
    assert abs(float(noisy.mean())) < 4 * float(noisy.std()) / 20, "no more than chance, on average over 400 features"
    assert float(noisy.std()) < 0.005


def test_features_that_are_hardly_ever_active_say_nothing() -> None:
    activations, positions = numbered(1000)
    codes = torch.zeros(1000, 2)
    codes[: FEW - 1, 0] = 1
    codes[:FEW, 1] = 1
    assert (
        len(position_selectivity(feature_statistics(Known(codes, torch.zeros(2, 4)), [(activations, positions)]))) == 1
    )


def test_retention_is_agreement_with_ones_own_mask() -> None:
    activations, positions = numbered(6000)
    drawn = torch.Generator().manual_seed(2)
    mask_values = (torch.rand(16, 50, generator=drawn) < 0.5).float()
    agree = mask_values[positions] + 0.2 * torch.rand(6000, 50, generator=drawn)
    ignore = torch.rand(6000, 50, generator=drawn)
    for codes, low, high in ((agree, 0.99, 1.0), (ignore, -0.2, 0.2)):
        found = retention(feature_statistics(Known(codes, torch.zeros(50, 4)), [(activations, positions)]), mask_values)
        assert low <= found.median <= high
        assert abs(found.chance) < 0.2
        assert found.features == 50


def test_chance_is_about_nothing_for_masks_that_are_laid_out_in_order() -> None:
    activations, positions = numbered(6000)
    for mask in ("gaussian", "hard:together=true", "static_slice"):
        module = MASKS.choose(mask).build(shape=Shape(4, 64, 16))
        initialise(module, 0)
        mask_values = module.table(0)
        assert mask_values is not None
        found = retention(
            feature_statistics(Known(mask_values[positions], torch.zeros(64, 4)), [(activations, positions)]),
            mask_values,
        )
        assert found.median == pytest.approx(1.0, abs=1e-4)
        assert abs(found.chance) < 0.4, mask


def test_masks_are_lifted_where_there_are_masks() -> None:
    activations, positions = numbered(400)

    class Masked(Known):
        def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
            return super().encode(activations, positions) * (1.0 if mask_off else (positions[:, None] < 8))

    known = Masked(1 + 0.2 * torch.rand(400, 3, generator=torch.Generator().manual_seed(0)), torch.randn(3, 4))
    plain, mask_off = (
        dictionary_metrics(known, [(activations, positions)]),
        dictionary_metrics(known, [(activations, positions)], torch.ones(16, 3)),
    )
    assert plain.mask_off.l0 == plain.l0 == mask_off.l0
    assert mask_off.mask_off.l0 == 3
    assert mask_off.position_selectivity.position_specific == 3, "by the mask"
    assert mask_off.mask_off.position_selectivity.position_specific == 0, "not by themselves"


def test_recovery_finds_turned_and_reordered_directions_and_uses_each_once() -> None:
    drawn = torch.Generator().manual_seed(3)
    true = torch.randn(20, 30, generator=drawn)
    learned = torch.cat([5 * true[torch.randperm(20, generator=drawn)], torch.randn(7, 30, generator=drawn)])
    found = recovery(learned, {"free": true[:12], "position_specific": true[12:]})
    assert found["free"].matched == pytest.approx(1.0)
    assert found["position_specific"].recovered == 1
    collapsed = recovery(true[:1].expand(20, -1), {"all": true[:1].expand(20, -1) + 0.0})
    assert collapsed["all"].matched == pytest.approx(1.0)
    one = recovery(torch.cat([true[:1], torch.randn(19, 30, generator=drawn)]), {"all": true[:1].expand(20, -1)})
    assert one["all"].largest == pytest.approx(1.0)
    assert one["all"].matched < 0.5, "one learned direction cannot stand for twenty"
    assert seed_stability(true, true.flip(0)) == pytest.approx(1.0)
    few = recovery(true[:5], {"all": true})
    assert few["all"].recovered == 0.25, "what nothing is left for counts as not found"
