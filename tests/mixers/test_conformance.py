"""What holds for every mixer: a file added to the folder is tested by being there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from whence.encodings import ENCODINGS
from whence.mixers import MIXERS, Mixer
from whence.models.init import initialise
from whence.models.sequence import ModelConfig, SequenceModel

D_MODEL, HEADS, LENGTH, BATCH = 24, 4, 9, 3
CHOICES = [*MIXERS.names(), "bimamba:weights=separate", "mamba:d_state=5,expand=1,d_conv=2,dt_rank=3"]


def mixer(choice: str) -> Mixer:
    made: Mixer = MIXERS.choose(choice).build(d_model=D_MODEL, heads=HEADS)
    initialise(made, 0)
    return made


def model(choice: str, **fields: object) -> SequenceModel:
    config = ModelConfig.model_validate(
        {"mixer": choice, "d_model": D_MODEL, "heads": HEADS, "dropout": 0.0, "encoding": "none", **fields}
    )
    made = config.build(7, 5)
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
        made = ModelConfig.model_validate({"mixer": choice, "encoding": "none"}).build(7, 5)
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
        ({"encoding": "alibi"}, "Allowed: learned, none, position_tokens, sinusoidal"),
        (
            {"encoding": "none", "attention": "bidirectional"},
            "bimamba, which has no attention: leave it out. Allowed: causal",
        ),
    ],
)
def test_what_has_no_place_in_a_mixer_is_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig.model_validate({"mixer": "bimamba", **fields}).build(7, 5)


def test_heads_need_not_divide_the_width_where_there_are_none() -> None:
    config = ModelConfig.model_validate({"mixer": "mamba", "encoding": "learned", "d_model": 30, "heads": 4})
    assert config.build(7, 5)(*tokens()).shape == (BATCH, LENGTH, 5)
    with pytest.raises(ValueError, match="heads: 4 does not divide d_model=30"):
        ModelConfig.model_validate({**config.model_dump(), "mixer": "attention"}).build(7, 5)


def read(choice: str, valid: Tensor | None, kind: str = "bidirectional") -> Tensor:
    """What a mixer makes of noise, given how strongly the others attend to each token."""
    made = mixer(choice).double()
    kind = kind if kind in made.kinds else made.kinds[0]
    x = torch.randn(BATCH, LENGTH, D_MODEL, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    encoding = ENCODINGS.choose("none").build(d_model=D_MODEL, heads=HEADS, head_dim=D_MODEL // HEADS)
    (context,) = made.contexts([encoding], torch.arange(LENGTH)[None].expand(BATCH, -1), kind, valid=valid)  # type: ignore[arg-type]
    return made(x, context).detach()


@pytest.mark.parametrize("choice", CHOICES)
def test_strengths_of_one_and_zero_are_a_mask(choice: str) -> None:
    valid = torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(0)) > 0.4
    torch.testing.assert_close(read(choice, valid.double()), read(choice, valid))
    torch.testing.assert_close(read(choice, torch.ones(BATCH, LENGTH, dtype=torch.float64)), read(choice, None))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_lower_strength_counts_less(choice: str) -> None:
    """From full strength to none there is no jump, and half lies away from both."""
    strength = torch.ones(BATCH, LENGTH, dtype=torch.float64)
    quiet = strength.clone()
    quiet[:, 3] = 0.0
    full, none = read(choice, strength), read(choice, quiet)
    others = torch.arange(LENGTH) != 3
    apart = [float((read(choice, strength.lerp(quiet, t)) - full)[:, others].norm()) for t in (0.0, 0.5, 1 - 1e-9)]
    assert apart[0] < 1e-12 < apart[1] < apart[2]
    assert apart[2] == pytest.approx(float((none - full)[:, others].norm()), rel=1e-6)


def test_attention_weighs_by_the_strengths() -> None:
    """Softmax with every key's weight multiplied before it is normalised, written out."""
    made = mixer("attention").double()
    x = torch.randn(BATCH, LENGTH, D_MODEL, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    strength = torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    q, k, v = made.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)  # type: ignore[operator]
    weights = (q @ k.mT / (D_MODEL // HEADS) ** 0.5).exp()
    weights = weights * torch.where(torch.eye(LENGTH, dtype=torch.bool), 1.0, strength[:, None, None, :])
    mixed = weights / weights.sum(-1, keepdim=True) @ v
    torch.testing.assert_close(read("attention", strength), made.out(mixed.transpose(1, 2).flatten(2)).detach())  # type: ignore[operator]
