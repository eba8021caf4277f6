"""Each mitigation against its formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.leak.test_model import job_of, said
from whence.errors import UserError
from whence.leak.config import LeakConfig
from whence.leak.data import DATA
from whence.leak.masks import draw
from whence.leak.mitigations import (
    PenaltyInput,
    PermuteTokens,
    PositionPenalty,
    PositionPrior,
    VariancePenalty,
    explained,
    mean_correlation,
)
from whence.random import generator


def step(ratio: float = 1.0, leak: float = 0.0) -> PenaltyInput:
    place = torch.tensor(np.tile(np.arange(16), 8))
    said = torch.randn(128, 3, generator=generator(1)) + leak * place[:, None]
    return PenaltyInput(said.requires_grad_(), place, ratio, torch.tensor(0.7))


def test_variance_penalty_is_the_sources() -> None:
    made = step()
    found = VariancePenalty().penalty(made)
    assert found is not None
    assert found.item() == pytest.approx(float(made.prediction.detach().double().var(0).mean()) * 0.7 * 1000, rel=1e-5)
    assert VariancePenalty().penalty(step(0.9)) is None, "only when nearly all is masked"


@pytest.mark.parametrize("leak", [0.0, 0.05, 1.0])
def test_position_penalty_is_the_sources(leak: float) -> None:
    made = step(leak=leak)
    values, places = made.prediction.detach().numpy(), made.position.numpy()
    expected = np.mean([abs(np.corrcoef(column, places)[0, 1]) for column in values.T])
    found = PositionPenalty(weight=2.0).penalty(made)
    assert found is not None
    assert found.item() == pytest.approx(expected * 2.0 * 0.7 * 100, rel=1e-4)
    found.backward()
    assert made.prediction.grad is not None
    assert torch.isfinite(made.prediction.grad).all()


def test_the_r2_form_sees_what_single_dimensions_hide() -> None:
    """Two dimensions that hide position in each other: no correlation apart, all of it together."""
    place = torch.arange(64).float()
    noise = 1e2 * torch.randn(64, generator=generator(0))
    masked = torch.stack([noise + place, noise - place], 1)
    assert mean_correlation(masked, place) < 0.3
    assert explained(masked, place) > 0.8
    x = np.c_[np.ones(64), masked.numpy()]
    rest = place.numpy() - x @ np.linalg.lstsq(x, place.numpy(), rcond=None)[0]
    assert float(explained(masked.double(), place.double(), ridge=1e-12)) == pytest.approx(
        1 - rest.var() / place.numpy().var(), abs=1e-4
    )


def test_zeroed_encodings_are_zero_at_masked_tokens_only() -> None:
    plain, mitigated = (job_of(mitigation) for mitigation in ("none", "zero_masked_positions"))
    tokens = plain.tokens(generator(1), 4, "test")
    masked = draw(generator(2), 4, tokens.shape[1], 0.5)
    with torch.no_grad():
        told, untold = (job.model.embed(tokens, masked, job.positions) for job in (plain, mitigated))  # type: ignore[operator]
    assert torch.equal(told[~masked], untold[~masked])
    assert torch.equal(untold[masked], untold[masked][:1].expand_as(untold[masked]))
    assert not torch.equal(told[masked], untold[masked])


def test_permutation_is_undone() -> None:
    """A model that mixes nothing does not notice; and every order comes up."""
    torch.manual_seed(0)
    mitigation = PermuteTokens(prob=1.0)
    orders = mitigation.order(torch.zeros(500, 4, 1))
    assert orders is not None
    assert len({tuple(order.tolist()) for order in orders}) == 24
    never = PermuteTokens(prob=0.0).order(torch.zeros(3, 4, 1))
    assert never is not None
    assert torch.equal(never, torch.arange(4).expand(3, 4))
    assert PermuteTokens().eval().order(torch.zeros(3, 4, 1)) is None, "a shuffled model is used in order"
    job = job_of("permute_tokens:always=true", backbone="transformer", temporal="none")
    tokens = job.tokens(generator(1), 4, "test")
    masked = draw(generator(2), 4, tokens.shape[1], 0.5)
    one, two = said(job, tokens, masked), said(job, tokens, masked)
    assert torch.allclose(one, two, atol=1e-5), "attention without encodings is equivariant"


def test_the_prior_is_the_template_and_vanishes_without_one() -> None:
    for share in (0.0, 0.5):
        data = DATA.choose(f"synthetic:position={share},steps=64,channels=2").build()
        halves = [data.draw(generator("half", half), 512, "train", half) for half in (0, 1)]
        prior = PositionPrior(64, 2)
        prior.fit(*halves)
        size = float(prior.table.pow(2).mean())
        assert size == pytest.approx(share, abs=0.05 if share else 0.002)
        tokens = halves[0][:3]
        assert torch.allclose(prior.restore(prior.content(tokens)), tokens, atol=1e-6)
        off = PositionPrior(64, 2, on=False)
        off.fit(*halves)
        assert torch.equal(off.restore(tokens), tokens)


def test_the_sources_switch_must_be_one() -> None:
    assert [str(t) for t in LeakConfig.read({"prevent_position_only_learning": False}).mitigations] == ["none"]
    for wrong in ("no", 5):
        with pytest.raises(UserError, match="expected true or false"):
            LeakConfig.read({"prevent_position_only_learning": wrong})


def test_the_sources_own_keys() -> None:
    spec = LeakConfig.read(
        {
            "mask_ratio": 1.0,
            "prevent_position_only_learning": True,
            "position_regularization_weight": 2.5,
            "shuffle_sequences_prob": 1.0,
        }
    )
    assert spec.masking.mask_ratio == 1.0
    assert [str(treatment) for treatment in spec.mitigations] == [
        "none",
        "zero_masked_positions+variance_penalty+position_penalty:weight=2.5+permute_tokens",
    ]
    assert LeakConfig.read({"mask_ratio": 0.5}).mitigations == LeakConfig().mitigations
    off = {"prevent_position_only_learning": False, "position_regularization_weight": 1.0, "shuffle_sequences_prob": 0}
    assert [str(treatment) for treatment in LeakConfig.read(off).mitigations] == ["none"], "all switched off"
    for both in (
        {"mitigations": "all"},
        {"mask_ratio": 1.0, "masking": {"mask_ratio": 0.5}},
        {"mask_ratio": 1, "masking": 3},
    ):
        with pytest.raises(UserError, match="Set one"):
            LeakConfig.read({"prevent_position_only_learning": True, **both})


@pytest.mark.parametrize("mitigation", ["content_gated", "zero_masked_positions"])
@pytest.mark.parametrize("backbone", ["transformer", "bimamba"])
def test_mitigations_act_on_time_and_leave_the_channel(mitigation: str, backbone: str) -> None:
    """A masked token's prediction changes with its channel's embedding, and not with its time's."""
    job = job_of(mitigation, layout="time_channel", backbone=backbone, temporal="learned", layers=1)
    tokens = job.tokens(generator(1), 3, "test")
    masked = torch.ones(tokens.shape[:2], dtype=torch.bool)
    masked[:, : 2 * job.stride] = False
    before = said(job, tokens, masked)
    last, time, channel = slice(-job.stride, None), *job.positions[0, -1].tolist()
    with torch.no_grad():
        job.model.temporal.table[time] += 1.0  # type: ignore[union-attr, index]
    assert torch.equal(said(job, tokens, masked)[:, last], before[:, last]), "time does not reach it"
    with torch.no_grad():
        job.model.spatial.table[channel] += torch.linspace(-1, 1, 16)  # type: ignore[union-attr, index]
    changed = said(job, tokens, masked)[:, last] - before[:, last]
    assert float(changed[:, -1].abs().max()) > 1e-3, "the last channel's embedding does"
