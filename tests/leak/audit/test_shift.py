"""The shift test: every placement counts, the same ones under every ablation, and noise is not position."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.leak.known_models import FEATURES, TOKENS, Interpolation, WithTable, content
from whence.leak.audit.auditing import measure_audit
from whence.leak.audit.own_model import audit_target
from whence.leak.audit.shift import placements, shift_profile, shift_test


class Stepped(Interpolation):
    """Two tables that are read at 0, 1, 2, …: one that hardly changes after far shifts, one that does."""

    def __init__(self) -> None:
        super().__init__()
        near, far = torch.zeros(TOKENS, FEATURES), torch.zeros(TOKENS, FEATURES)
        near[:, 0] = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(
            TOKENS // 4
        )  # the same after 8 steps, opposite after 2
        far[:, 1] = 0.1 * torch.linspace(-1, 1, TOKENS)
        self.near, self.far = (nn.Embedding.from_pretrained(table, freeze=False) for table in (near, far))
        self.blocks = nn.ModuleList([nn.Identity()])

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        index = torch.arange(TOKENS)
        return self.blocks[0](super().forward(x, masked) + self.near(index) + self.far(index))


def test_the_largest_of_all_placements_is_reported() -> None:
    """An audit that stops at the first distance above 1 % would report the least of the three."""
    target = audit_target(Stepped(), content(0))
    shift = shift_test(target, 0.5, 1.0)
    assert list(shift.placements) == [8, 7, 2]
    first, second, third = shift.placements.values()
    assert 0 < first < 0.1 * second < 0.1 * third
    assert shift.sensitivity == third
    assert shift_profile(target, 0.5)["blocks.0"] == pytest.approx(third)


def test_ablating_one_of_two_independent_pathways_never_raises_the_sensitivity() -> None:
    found = measure_audit(audit_target(Stepped(), content(0)), (0.5, 0.9))
    assert [row.where for row in found.pathways] == ["near", "far"]
    for row in found.pathways:
        assert row.with_all == pytest.approx(sum(measures.shift.sensitivity for measures in found.ratios.values()) / 2)
        assert row.without <= row.with_all
        assert row.alone <= row.with_all
    near, far = found.pathways
    assert near.without == pytest.approx(far.alone), "the same placements: without the one is with the other alone"


def test_blocks_are_the_same_at_both_offsets() -> None:
    target = audit_target(Interpolation(), content(0))
    for shifted in placements(target, 0.5):
        visible = ~shifted.here.masked, ~shifted.there.masked
        assert torch.equal(shifted.here.content[visible[0]], shifted.there.content[visible[1]])
        assert torch.equal(visible[0].roll(shifted.by, 1), visible[1])
        assert torch.equal(shifted.here.predicted.roll(shifted.by, 1), shifted.there.predicted)


class Noisy(WithTable):
    """Noise of its own generator: shared by all tokens of a row, by all rows, or by none."""

    def __init__(self, size: float, shared: str) -> None:
        super().__init__(size * content(1000, 1)[0])
        self.shared, self.draws = shared, 0

    def forward(self, x: Tensor, masked: Tensor) -> Tensor:
        self.draws += 1
        generator = torch.Generator().manual_seed(self.draws)
        shape = {"row": (len(x), 1, FEATURES), "batch": (1, TOKENS, FEATURES), "none": x.shape}[self.shared]
        return super().forward(x, masked) + 0.5 * torch.randn(shape, generator=generator)


@pytest.mark.parametrize("shared", ["row", "batch", "none"])
def test_noise_without_position(shared: str) -> None:
    found = measure_audit(audit_target(Noisy(0.0, shared), content(0)), (0.5, 0.9, 1.0))
    assert found.verdict.leak in ("undecided", "clean")
    assert found.ratios[1].position_variance < 1e-12
    assert found.ratios[0.5].shift.sensitivity < 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_noise_shared_by_rows_does_not_bury_a_small_table(seed: int) -> None:
    """Standard deviation .1 under noise of .5, which cancels between the positions of a row."""
    model = Noisy(0.1, "row")
    model.draws = 1000 * seed
    found = measure_audit(audit_target(model, content(seed)), (0.5, 1.0))
    assert found.verdict.outcome == "leaky"
    assert found.verdict.pathways == ["learned absolute positions"]


def test_undecided_names_its_detection_limit() -> None:
    verdict = measure_audit(audit_target(Noisy(0.0, "none"), content(0)), (0.5, 1.0)).verdict
    assert verdict.outcome == "undecided"
    assert "Undecided" in verdict.sentences[0]
    assert "detection limit" in verdict.sentences[1]
    assert "detection limit" in verdict.sentences[2]


def test_an_audit_is_reproducible_and_leaves_the_random_state_alone() -> None:
    class Drawn(WithTable):
        def forward(self, x: Tensor, masked: Tensor) -> Tensor:
            return super().forward(x, masked) + 0.3 * torch.randn_like(x)

    target = audit_target(Drawn(0.3 * content(1000, 1)[0]), content(0))
    before = torch.get_rng_state()
    one = measure_audit(target, (0.5, 1.0))
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert measure_audit(target, (0.5, 1.0)) == one
