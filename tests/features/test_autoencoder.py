"""Every composition computes what it says, whichever way it is computed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from whence.errors import UserError
from whence.features.run import FeaturesRun
from whence.features.sae.autoencoder import Autoencoder, AutoencoderSpec
from whence.features.sae.parts import CENTRES, ENCODERS, LOSSES, MASKS, NORMS, SCHEDULES, SPARSITY, STARTS
from whence.models.init import initialise

WIDTH, SIZE, CONTEXT, N = 8, 48, 12, 64


def built(steps: int = 10, **parts: Any) -> Autoencoder:
    model = AutoencoderSpec.read({"size": SIZE, "sparsity": "topk:k=5", **parts}).build(WIDTH, CONTEXT, steps)
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


def by_hand(model: Autoencoder, states: Tensor, positions: Tensor, lifted: bool = False) -> Tensor:
    """Codes (n, size), all features computed, gradients through all of them."""
    strength = model.schedule.strength(model.progress)
    x = (states - model.centre.table[positions]) / model.scale
    pre = model.encoder.linear(model.encoder.prepare(x, positions, strength), positions)
    scale, shift, mask = model.encoder.scale(strength), model.encoder.shift(strength), model.mask.table(model.progress)
    pre = pre if scale is None or lifted else pre * scale[positions]
    pre = pre if shift is None else pre + shift[positions]
    raw = model.norm(pre).relu()
    if mask is not None and not lifted:
        raw = raw * (1 + strength * (mask[positions] - 1))
    kept = torch.zeros_like(raw).scatter(1, raw.topk(5).indices, 1.0)
    return raw * kept


def variants() -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{"encoder": name} for name in ENCODERS.names()]
    found += [{"mask": name} for name in MASKS.names()] + [{"norm": name} for name in NORMS.names()]
    found += [{"position_schedule": name, "mask": "gaussian", "encoder": "hierarchical"} for name in SCHEDULES.names()]
    found += [{"centre": name} for name in CENTRES.names()] + [{"start": name} for name in STARTS.names()]
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
    states, positions = some_states()
    exact, true = deepcopy(model).double(), states.double()
    for lifted in (False, True):
        wanted = by_hand(exact, true, positions, lifted)
        torch.testing.assert_close(model.codes(states, positions, lifted), wanted.float())
    model.loss(states, positions).backward()
    fast = {name: p.grad for name, p in model.named_parameters()}
    x = (true - exact.centre(positions)) / exact.scale
    said = by_hand(exact, true, positions) @ exact.decoder + exact.bias
    said = exact.encoder.restore(said, positions, exact.schedule.strength(exact.progress))
    (x - said).square().mean().backward()
    for name, parameter in exact.named_parameters():
        if parameter.grad is None:
            assert fast[name] is None or not fast[name].any(), name
        else:
            torch.testing.assert_close(fast[name], parameter.grad.float(), msg=name)


@pytest.mark.parametrize("on", ["masked", "raw"])
def test_a_penalty_on_named_features_is_the_penalty_on_all(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.features.sae.sparsity import l1

    model = built(sparsity=f"l1:l0=4,on={on}", mask="hard").eval()
    states, positions = some_states()
    gradients = []
    for sparse in (1, 10**9):
        monkeypatch.setattr(l1, "SPARSE", sparse)
        model.zero_grad()
        model.loss(states, positions).backward()
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
    states, positions = some_states(-1, 2000)
    with torch.no_grad():
        l0 = float((model.eval().codes(states, positions) > 0).sum(1).float().mean())
    assert 2.5 < l0 < 5.5


def test_batch_topk_keeps_k_on_average_and_not_in_every_state() -> None:
    model = built(sparsity="batch_topk:k=3").train()
    states, positions = some_states()
    with torch.no_grad():
        kept = (model.codes(states, positions) > 0).sum(1)
    assert kept.sum() == 3 * N
    assert kept.unique().numel() > 1


def test_a_lifted_mask_is_not_there() -> None:
    states, positions = some_states()
    plain, masked = built(), built(mask="hard")
    assert not torch.equal(plain.codes(states, positions), masked.codes(states, positions))
    assert torch.equal(plain.codes(states, positions), masked.codes(states, positions, lifted=True))
    closed = masked.mask.table(0)[positions] == 0
    assert not masked.codes(states, positions)[closed].any()


@pytest.mark.parametrize("parts", [{"encoder": name} for name in ENCODERS.names()] + [{"mask": "gaussian"}], ids=str)
def test_a_blind_twin_knows_no_positions(parts: dict[str, str]) -> None:
    model = built(**parts, blind=True, centre="position_mean")
    assert model.assigned() is None
    states, positions = some_states()
    assert torch.equal(model.codes(states, positions), model.codes(states, positions.flip(0)))
    seeing = built(**parts, centre="position_mean")
    assert not torch.equal(seeing.codes(states, positions), seeing.codes(states, positions.flip(0)))


def test_positions_beyond_those_trained_on_count_as_the_nearest() -> None:
    """The last position of the context may be a special token's, which nothing is trained on."""
    spec = AutoencoderSpec.read({"size": SIZE, "mask": "gaussian", "centre": "position_mean"})
    model = spec.build(WIDTH, CONTEXT, 10, ends=(1, CONTEXT - 2))
    initialise(model, 0)
    states, positions = some_states()
    model.fit([(states, positions)])
    first, second = torch.zeros(N, dtype=torch.long), torch.ones(N, dtype=torch.long)
    assert torch.equal(model.codes(states, first), model.codes(states, second))
    last, beyond = torch.full((N,), CONTEXT - 2), torch.full((N,), CONTEXT + 99)
    assert torch.equal(model.codes(states, last), model.codes(states, beyond))
    codes = model.codes(states, last)
    assert torch.equal(model.decode(codes, last), model.decode(codes, beyond))


def test_decode_undoes_the_centre_and_the_scale() -> None:
    """A dictionary of ± unit vectors, all of whose features may be active, gives states back."""
    model = AutoencoderSpec.read({"size": 2 * WIDTH, "sparsity": f"topk:k={WIDTH}", "centre": "position_mean"}).build(
        WIDTH, CONTEXT, 1
    )
    initialise(model, 0)
    states, positions = some_states()
    model.fit([(states, positions)])
    basis = torch.cat([torch.eye(WIDTH), -torch.eye(WIDTH)])
    model.decoder.data.copy_(basis)
    model.encoder.weight.data.copy_(basis)
    with torch.no_grad():
        torch.testing.assert_close(model.decode(model.codes(states, positions), positions), states)


def test_position_means_by_hand() -> None:
    states, positions = some_states(n=500)
    full, same = built(centre="position_mean"), built(centre=f"position_mean:rank={WIDTH}")
    for model in (full, same):
        model.fit([(states, positions)])
        for p in range(CONTEXT):
            torch.testing.assert_close(model.centre.table[p], states[positions == p].mean(0))
    low = built(centre="position_mean:rank=1")
    low.fit([(states, positions)])
    assert torch.linalg.matrix_rank(low.centre.table - states.mean(0), atol=1e-4) == 1
    low.fit([(states[positions != 3], positions[positions != 3])])
    torch.testing.assert_close(low.centre.table[3], states[positions != 3].mean(0), msg="no states, the mean of all")


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
    states, positions = some_states()
    for name in LOSSES.names():
        encoder = "multi_scale" if name == "scale_targets" else "shared"
        with_it, without = built(encoder=encoder, losses=[name]), built(encoder=encoder)
        assert with_it.loss(states, positions) != without.loss(states, positions), name
    model = built(losses=["position_weighted:first=1,last=3"])
    codes = model.codes(states, positions)
    errors = ((states - model.decode(codes, positions)) / model.scale).square().mean(1)
    weights = (1 + 2 * positions / (CONTEXT - 1)) / 2
    torch.testing.assert_close(model.eval().loss(states, positions), (errors * weights).mean())
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
