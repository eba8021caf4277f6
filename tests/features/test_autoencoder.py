"""Every composition computes what it says, whichever way it is computed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from whence.errors import UserError
from whence.features.config import AutoencoderConfig
from whence.features.run import FeaturesRun
from whence.features.sae.autoencoder import Autoencoder
from whence.features.sae.centering import CENTERINGS
from whence.features.sae.encoders import ENCODERS
from whence.features.sae.inits import INITS
from whence.features.sae.losses import LOSSES
from whence.features.sae.masks import MASKS
from whence.features.sae.norms import NORMS
from whence.features.sae.schedules import SCHEDULES
from whence.features.sae.sparsity import SPARSITY
from whence.models.init import initialise

WIDTH, SIZE, CONTEXT, N = 8, 48, 12, 64


def built(steps: int = 10, **parts: Any) -> Autoencoder:
    model = Autoencoder(AutoencoderConfig.read({"d_sae": SIZE, "sparsity": "topk:k=5", **parts}), WIDTH, CONTEXT, steps)
    initialise(model, 0)
    model.fit([some_states()])
    for parameter in model.positional_parameters():  # what starts at nothing would hide mistakes
        parameter.data.add_(
            0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
        )
    return model


def some_states(seed: int = 0, n: int = N) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    positions = torch.randint(CONTEXT, (n,), generator=drawn)
    return 3 + torch.randn(n, WIDTH, generator=drawn) + 0.5 * positions[:, None], positions


def by_hand(model: Autoencoder, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
    """Codes (n, d_sae), all features computed, gradients through all of them."""
    strength = model.schedule.strength(model.progress)
    x = (activations - model.centering.table[positions]) / model.scale
    pre = model.encoder.linear(model.encoder.prepare(x, positions, strength), positions)
    scale, shift, mask = model.encoder.scale(strength), model.encoder.shift(strength), model.mask.table(model.progress)
    pre = pre if scale is None or mask_off else pre * scale[positions]
    pre = pre if shift is None else pre + shift[positions]
    raw = model.norm(pre).relu()
    if mask is not None and not mask_off:
        raw = raw * (1 + strength * (mask[positions] - 1))
    kept = torch.zeros_like(raw).scatter(1, raw.topk(5).indices, 1.0)
    return raw * kept


def variants() -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{"encoder": name} for name in ENCODERS.names()]
    found += [{"mask": name} for name in MASKS.names()] + [{"norm": name} for name in NORMS.names()]
    found += [{"position_schedule": name, "mask": "gaussian", "encoder": "hierarchical"} for name in SCHEDULES.names()]
    found += [{"centering": name} for name in CENTERINGS.names()] + [{"init": name} for name in INITS.names()]
    found += [
        {"encoder": "per_range:embedded=true", "mask": "hard:together=true", "norm": "layer_norm:place=after_relu"}
    ]
    return found


@pytest.mark.parametrize("parts", variants(), ids=str)
def test_few_features_computed_are_as_good_as_all(parts: dict[str, str]) -> None:
    """Sparse products against dense ones in float64: the same loss, the same gradients of every parameter."""
    model = built(**parts)
    model.done.fill_(4)
    model.eval()
    activations, positions = some_states()
    exact, true = deepcopy(model).double(), activations.double()
    for mask_off in (False, True):
        wanted = by_hand(exact, true, positions, mask_off)
        torch.testing.assert_close(model.encode(activations, positions, mask_off), wanted.float())
    model.loss(activations, positions).backward()
    fast = {name: p.grad for name, p in model.named_parameters()}
    x = (true - exact.centering(positions)) / exact.scale
    decoded = by_hand(exact, true, positions) @ exact.W_dec + exact.b_dec
    decoded = exact.encoder.restore(decoded, positions, exact.schedule.strength(exact.progress))
    (x - decoded).square().mean().backward()
    for name, parameter in exact.named_parameters():
        if parameter.grad is None:
            assert fast[name] is None or not fast[name].any(), name
        else:
            torch.testing.assert_close(fast[name], parameter.grad.float(), msg=name)


@pytest.mark.parametrize("on", ["masked", "raw"])
def test_a_penalty_on_named_features_is_the_penalty_on_all(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.features.sae import sparsity

    model = built(sparsity=f"l1:l0=4,on={on}", mask="hard").eval()
    activations, positions = some_states()
    gradients = []
    for sparse in (1, 10**9):
        monkeypatch.setattr(sparsity, "SPARSE", sparse)
        model.zero_grad()
        model.loss(activations, positions).backward()
        gradients.append([p.grad for p in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("sparsity", SPARSITY.names())
def test_a_wanted_number_of_active_features_is_reached(sparsity: str) -> None:
    """On states that never end, in a few hundred steps."""
    choice = SPARSITY.choose(sparsity)
    choice = choice.model_copy(update=choice.variant.at_l0(4))  # pyright: ignore[reportAttributeAccessIssue]
    model = built(sparsity=choice).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(300):
        optimizer.zero_grad()
        model.loss(*some_states(step, 256)).backward()
        optimizer.step()
    activations, positions = some_states(-1, 2000)
    with torch.no_grad():
        l0 = float((model.eval().encode(activations, positions) > 0).sum(1).float().mean())
    assert 2.5 < l0 < 5.5


def test_batch_topk_keeps_k_on_average_and_not_in_every_state() -> None:
    model = built(sparsity="batch_topk:k=3").train()
    activations, positions = some_states()
    with torch.no_grad():
        kept = (model.encode(activations, positions) > 0).sum(1)
    assert kept.sum() == 3 * N
    assert kept.unique().numel() > 1


def test_a_lifted_mask_is_not_there() -> None:
    activations, positions = some_states()
    plain, masked = built(), built(mask="hard")
    assert not torch.equal(plain.encode(activations, positions), masked.encode(activations, positions))
    assert torch.equal(plain.encode(activations, positions), masked.encode(activations, positions, mask_off=True))
    closed = masked.mask.table(0)[positions] == 0
    assert not masked.encode(activations, positions)[closed].any()


@pytest.mark.parametrize("parts", [{"encoder": name} for name in ENCODERS.names()] + [{"mask": "gaussian"}], ids=str)
def test_a_blind_twin_knows_no_positions(parts: dict[str, str]) -> None:
    model = built(**parts, position_ablated=True, centering="position_mean")
    assert model.mask_values() is None
    activations, positions = some_states()
    assert torch.equal(model.encode(activations, positions), model.encode(activations, positions.flip(0)))
    seeing = built(**parts, centering="position_mean")
    assert not torch.equal(seeing.encode(activations, positions), seeing.encode(activations, positions.flip(0)))


def test_positions_beyond_those_trained_on_count_as_the_nearest() -> None:
    """The last position of the context may be a special token's, which nothing is trained on."""
    config = AutoencoderConfig.read({"d_sae": SIZE, "mask": "gaussian", "centering": "position_mean"})
    model = Autoencoder(config, WIDTH, CONTEXT, 10, ends=(1, CONTEXT - 2))
    initialise(model, 0)
    activations, positions = some_states()
    model.fit([(activations, positions)])
    first, second = torch.zeros(N, dtype=torch.long), torch.ones(N, dtype=torch.long)
    assert torch.equal(model.encode(activations, first), model.encode(activations, second))
    last, beyond = torch.full((N,), CONTEXT - 2), torch.full((N,), CONTEXT + 99)
    assert torch.equal(model.encode(activations, last), model.encode(activations, beyond))
    codes = model.encode(activations, last)
    assert torch.equal(model.decode(codes, last), model.decode(codes, beyond))


def test_decode_undoes_the_centre_and_the_scale() -> None:
    """A dictionary of ± unit vectors, all of whose features may be active, gives states back."""
    parts = {"sparsity": f"topk:k={WIDTH}", "centering": "position_mean"}
    model = Autoencoder(AutoencoderConfig.read({"d_sae": 2 * WIDTH, **parts}), WIDTH, CONTEXT, 1)
    initialise(model, 0)
    activations, positions = some_states()
    model.fit([(activations, positions)])
    basis = torch.cat([torch.eye(WIDTH), -torch.eye(WIDTH)])
    model.W_dec.data.copy_(basis)
    model.encoder.weight.data.copy_(basis)
    with torch.no_grad():
        torch.testing.assert_close(model.decode(model.encode(activations, positions), positions), activations)


def test_position_means_by_hand() -> None:
    activations, positions = some_states(n=500)
    full, same = built(centering="position_mean"), built(centering=f"position_mean:rank={WIDTH}")
    for model in (full, same):
        model.fit([(activations, positions)])
        for p in range(CONTEXT):
            torch.testing.assert_close(model.centering.table[p], activations[positions == p].mean(0))
    low = built(centering="position_mean:rank=1")
    low.fit([(activations, positions)])
    assert torch.linalg.matrix_rank(low.centering.table - activations.mean(0), atol=1e-4) == 1
    low.fit([(activations[positions != 3], positions[positions != 3])])
    torch.testing.assert_close(
        low.centering.table[3], activations[positions != 3].mean(0), msg="no states, the mean of all"
    )


def test_masks_are_what_they_say() -> None:
    hard = built(mask="hard:share=0.25").mask.table(0)
    assert hard.unique().tolist() == [0, 1]
    assert abs(float(hard.mean()) - 0.25) < 0.05
    stretch = built(mask="hard:share=0.5,together=true").mask.table(0)
    assert ((stretch.roll(1, 0) != stretch).sum(0) == 2).all(), "one stretch each, the ends being neighbours"
    slices = built(mask="static_slice:ranges=4").mask.table(0)
    assert (slices.sum(0) == CONTEXT / 4).all()
    assert (slices.sum(1) == SIZE / 4).all()
    bells = built(mask="gaussian:sigma=0.125").mask.table(0)
    two_away = bells[2:, :] / bells[:-2, :].clamp(min=1e-30)
    ratio = two_away[1:] / two_away[:-1]  # of a bell: exp(−2 · 2 / 2σ²), wherever one looks
    seen = (bells > 1e-20)[:-3] & (bells > 1e-20)[3:]
    torch.testing.assert_close(
        ratio[seen], torch.full_like(ratio[seen], float(torch.tensor(-2 / 1.5**2).exp())), rtol=1e-3, atol=0
    )
    progressive = built(mask="progressive")
    progressive.mask.logit.data.zero_()  # pyright: ignore[reportAttributeAccessIssue]
    assert progressive.mask.table(0).min() > 0.97
    assert progressive.mask.table(1.0).min() < 0.05


def test_the_losses_by_hand() -> None:
    activations, positions = some_states()
    for name in LOSSES.names():
        encoder = "multi_scale" if name == "scale_targets" else "shared"
        with_it, without = built(encoder=encoder, losses=[name]), built(encoder=encoder)
        assert with_it.loss(activations, positions) != without.loss(activations, positions), name
    model = built(losses=["position_weighted:first=1,last=3"])
    codes = model.encode(activations, positions)
    errors = ((activations - model.decode(codes, positions)) / model.scale).square().mean(1)
    weights = (1 + 2 * positions / (CONTEXT - 1)) / 2
    torch.testing.assert_close(model.eval().loss(activations, positions), (errors * weights).mean())
    with pytest.raises(UserError, match="scale_targets"):
        FeaturesRun.read({"model": {"losses": ["scale_targets"]}}).check()


def test_schedules_begin_and_end_where_they_say() -> None:
    for name in SCHEDULES.names():
        schedule = SCHEDULES.choose(name).build()
        strengths = [schedule.strength(step / 100) for step in range(101)]
        assert strengths == sorted(strengths)
        assert strengths[-1] == schedule.penalty(1.0) == 1
        assert strengths[0] == (name == "constant")
    curriculum = SCHEDULES.choose("curriculum:begin=0.2,full=0.6").build()
    assert curriculum.strength(0.2) == 0
    assert curriculum.strength(0.4) == pytest.approx(0.5)


def test_only_what_is_about_position_has_its_own_rate() -> None:
    assert built().positional_parameters() == []
    assert len(built(mask="soft_sigmoid").positional_parameters()) == 1
    routed = built(encoder="attention_routed", losses=["info_nce"])
    names = {name for name, p in routed.named_parameters() if any(p is q for q in routed.positional_parameters())}
    assert names == {"encoder.embedding", "encoder.query", "encoder.key", "losses.0.projection", "losses.0.embedding"}
