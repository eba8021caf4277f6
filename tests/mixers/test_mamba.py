"""Mamba and BiMamba against mambapy, and the properties that their definition promises."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mambapy.mamba import MambaBlock, MambaConfig
from torch import Tensor

from whence.mixers.bimamba import BiMamba
from whence.mixers.mamba import DELTA_RANGE, Mamba, Memory
from whence.models.init import initialise
from whence.training.config import TrainingConfig
from whence.training.optim import make_optimizer

D_MODEL, LENGTH, BATCH = 24, 37, 2


def mamba(**options: Any) -> Mamba:
    made = Mamba(D_MODEL, **options)
    initialise(made, 0)
    return made


def data(length: int = LENGTH) -> Tensor:
    return torch.randn(BATCH, length, D_MODEL, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("options", [{}, {"d_state": 7, "expand": 3, "d_conv": 3, "dt_rank": 5, "bias": True}])
def test_equals_mambapy(options: dict[str, Any]) -> None:
    ours = mamba(**options)
    names = {"expand": "expand_factor"}
    theirs = MambaBlock(MambaConfig(D_MODEL, 1, **{names.get(key, key): value for key, value in options.items()}))
    theirs.load_state_dict(ours.state_dict())
    theirs.double()
    x, y = data().requires_grad_(), data().double().requires_grad_()
    weight = torch.randn(BATCH, LENGTH, D_MODEL)
    mine, other = ours(x), theirs(y)
    torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-6)
    (mine * weight).sum().backward()
    (other * weight).sum().backward()
    torch.testing.assert_close(x.grad.double(), y.grad, rtol=1e-4, atol=1e-6)  # type: ignore[union-attr]
    wanted = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        error = (parameter.grad - wanted[name].grad).norm() / wanted[name].grad.norm()
        assert error < 1e-5, name


@pytest.mark.parametrize("cuts", [(1,) * LENGTH, (5, 1, 1, 30), (36, 1), (LENGTH,)])
def test_in_pieces_equals_at_once(cuts: tuple[int, ...]) -> None:
    made, x = mamba().double(), data().double()
    memory: Memory | None = None
    pieces = []
    for piece in x.split(cuts, 1):
        y, memory = made.extend(piece, memory)
        pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces, 1), made(x), rtol=0, atol=1e-12)


def test_reading_in_reverse_is_reading_the_reversed() -> None:
    made, x = mamba(), data()
    torch.testing.assert_close(made(x, reverse=True), made(x.flip(1)).flip(1))


@pytest.mark.parametrize("weights", ["shared", "separate"])
@pytest.mark.parametrize("gaps", [False, True])
def test_bidirectional_is_the_mean_of_both_readings(weights: Any, gaps: bool) -> None:
    made, x = BiMamba(D_MODEL, weights=weights), data()
    initialise(made, 0)
    valid = torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(0)) > 0.3 if gaps else None
    back = made.back if weights == "separate" else made.ahead
    turned = None if valid is None else valid.flip(1)
    torch.testing.assert_close(made(x, valid), (made.ahead(x, valid) + back(x.flip(1), turned).flip(1)) / 2)


def test_shared_weights_cannot_tell_left_from_right() -> None:
    """Worth knowing: turned around, the input gives the output turned around. Separate weights break the symmetry."""
    x = data()
    for weights, symmetric in (("shared", True), ("separate", False)):
        made = BiMamba(D_MODEL, weights=weights)  # type: ignore[arg-type]
        assert torch.allclose(made(x.flip(1)).flip(1), made(x), atol=1e-5) == symmetric


@pytest.mark.parametrize("reverse", [False, True])
def test_tokens_that_are_not_kept_write_nothing(reverse: bool) -> None:
    made, x = mamba(), data().requires_grad_()
    valid = torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(0)) > 0.4
    other = torch.where(valid[..., None], x, 9 * torch.randn_like(x))
    y = made(x, valid, reverse=reverse)
    assert torch.equal(y[valid], made(other, valid, reverse=reverse)[valid])
    y[valid].square().sum().backward()
    assert x.grad is not None
    assert not x.grad[~valid].any()
    assert x.grad[valid].abs().min() > 0


def test_initialisation() -> None:
    made = mamba()
    torch.testing.assert_close(made.A_log.exp(), torch.arange(1.0, 17.0).expand(2 * D_MODEL, 16))
    delta = F.softplus(made.dt_proj.bias)
    assert delta.min() >= DELTA_RANGE[0] * 0.99
    assert delta.max() <= DELTA_RANGE[1] * 1.01
    assert delta.log().std() > 0.8  # log-uniform over two decades: 1.33
    assert made.dt_proj.weight.abs().max() <= made.dt_rank**-0.5
    wide = Mamba(256, out_scale=0.5)
    assert wide.out_proj.weight.std().item() == pytest.approx(0.5 / math.sqrt(3 * 512), rel=0.05)


def test_dynamics_do_not_decay() -> None:
    """Weight decay would pull A towards −1 and Δ's bias towards 0.69, and every channel to one time scale."""
    made = mamba()
    decayed, undecayed = make_optimizer(made, TrainingConfig()).param_groups
    assert {id(p) for p in undecayed["params"]} >= {
        id(made.A_log),
        id(made.D),
        id(made.dt_proj.bias),
        id(made.conv1d.weight),
    }
    assert id(made.in_proj.weight) in {id(p) for p in decayed["params"]}
