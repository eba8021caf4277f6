"""What holds for every mixer: a file added to the folder is tested by being there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from whence.mixers import MIXERS
from whence.mixers.base import Mixer
from whence.models.init import initialise
from whence.models.sequence import ModelSpec, SequenceModel

D_MODEL, HEADS, LENGTH, BATCH = 24, 4, 9, 3
CHOICES = [*MIXERS.names(), "bimamba:weights=separate", "mamba:state=5,expand=1,taps=2,rank=3"]


def mixer(choice: str) -> Mixer:
    made: Mixer = MIXERS.choose(choice).build(d_model=D_MODEL, heads=HEADS)
    initialise(made, 0)
    return made


def model(choice: str, **fields: object) -> SequenceModel:
    spec = ModelSpec.model_validate(
        {"mixer": choice, "d_model": D_MODEL, "heads": HEADS, "dropout": 0.0, "encoding": "none", **fields}
    )
    made = spec.build(7, 5)
    initialise(made, 0)
    return made.double()


def tokens(length: int = LENGTH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(7, (BATCH, length), generator=generator), torch.arange(length)[None]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_parameter_learns(choice: str) -> None:
    made = model(choice)
    made(*tokens()).square().sum().backward()
    silent = [name for name, p in made.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert not silent


@pytest.mark.parametrize("choice", CHOICES)
def test_rows_of_a_batch_do_not_meet(choice: str) -> None:
    made, (inputs, positions) = model(choice), tokens()
    together = made(inputs, positions)
    torch.testing.assert_close(together[1:2], made(inputs[1:2], positions), rtol=0, atol=1e-12)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_leaves_no_trace(choice: str, side: str) -> None:
    made, (inputs, positions) = model(choice), tokens()
    fill = torch.full((BATCH, 3), 2)
    parts = (fill, inputs) if side == "left" else (inputs, fill)
    valid = torch.ones(BATCH, LENGTH + 3, dtype=torch.bool)
    valid[:, slice(None, 3) if side == "left" else slice(-3, None)] = False
    padded = made(torch.cat(parts, 1), torch.arange(LENGTH + 3)[None], valid=valid)
    torch.testing.assert_close(padded[valid].view(BATCH, LENGTH, -1), made(inputs, positions), rtol=0, atol=1e-12)


@pytest.mark.parametrize("choice", CHOICES)
def test_reads_what_it_may_and_nothing_else(choice: str) -> None:
    """Causal mixers see nothing of the future; the others see all of it."""
    made, (inputs, positions) = model(choice), tokens()
    changed = inputs.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 7
    moved = (made(inputs, positions) != made(changed, positions)).any(-1).any(0)
    assert moved[5:].all()
    assert moved[:5].all() if choice.startswith("bimamba") else not moved[:5].any()


@pytest.mark.parametrize("choice", CHOICES)
def test_one_token_is_enough_and_half_precision_works(choice: str) -> None:
    made = model(choice).float()
    one = made(*tokens(1))
    assert one.isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        half = made(*tokens())
    full = made(*tokens())
    assert (half - full).norm() / full.norm() < 0.05
    half.float().square().sum().backward()


@pytest.mark.parametrize("choice", CHOICES)
def test_its_shape_is_known_without_computing(choice: str) -> None:
    with torch.device("meta"):
        made = ModelSpec.model_validate({"mixer": choice, "encoding": "none"}).build(7, 5)
        inputs = torch.zeros(2, 30, dtype=torch.long)
        assert made(inputs, inputs).shape == (2, 30, 5)


@pytest.mark.parametrize("choice", CHOICES)
def test_blocks_without_an_mlp(choice: str) -> None:
    made = model(choice, mlp_ratio=0)
    assert not [name for name, _ in made.named_parameters() if "mlp" in name or ".up." in name]
    assert made(*tokens()).isfinite().all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoding": "rope"}, "rope enters through rotate, which bimamba does not have"),
        ({"encoding": "alibi"}, "Allowed: learned, none, sinusoidal"),
        ({"encoding": "none", "attention": "bidirectional"}, "bimamba has none of: leave it out. Allowed: causal"),
    ],
)
def test_what_has_no_place_in_a_mixer_is_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelSpec.model_validate({"mixer": "bimamba", **fields}).build(7, 5)


def test_heads_need_not_divide_the_width_where_there_are_none() -> None:
    spec = ModelSpec.model_validate({"mixer": "mamba", "encoding": "learned", "d_model": 30, "heads": 4})
    assert spec.build(7, 5)(*tokens()).shape == (BATCH, LENGTH, 5)
    with pytest.raises(ValueError, match="heads: 4 does not divide d_model=30"):
        ModelSpec.model_validate({**spec.model_dump(), "mixer": "attention"}).build(7, 5)
