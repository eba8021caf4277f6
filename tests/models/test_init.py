"""Models that differ in one part start equal everywhere else."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from tests.models.model_parts import ENCODINGS, LAYERS, VOCAB, build
from whence.models.init import initialise
from whence.models.sequence import ModelConfig
from whence.random import derive


@pytest.mark.parametrize("other", ENCODINGS)
def test_weights_are_paired_across_encodings(other):
    one, two = build("rotate", seed=3), build(other, seed=3)
    mine, theirs = one.state_dict(), two.state_dict()
    common = {name for name in mine if name in theirs}
    assert {name for name in theirs if not name.startswith("encodings.")} <= common
    for name in common:
        assert torch.equal(mine[name], theirs[name]), name


def test_every_parameter_follows_the_seed_and_only_the_seed():
    for encoding in ENCODINGS:
        one, same, other = build(encoding, seed=1), build(encoding, seed=1), build(encoding, seed=2)
        for (name, a), b, c in zip(one.named_parameters(), same.parameters(), other.parameters(), strict=True):
            assert torch.equal(a, b), name
            constant = a.numel() == 0 or bool((a == a.flatten()[0]).all())  # norms and biases
            assert constant or not torch.equal(a, c), name


def test_layers_start_different():
    blocks = build("none").blocks
    assert not torch.equal(blocks[0].mixer.qkv.weight, blocks[1].mixer.qkv.weight)


def test_ambient_rng_is_neither_read_nor_moved():
    model = build("embed", seed=5)
    before = {name: p.clone() for name, p in model.named_parameters()}
    torch.manual_seed(123)
    expected = torch.rand(4)
    torch.manual_seed(123)
    initialise(model, 5)
    assert torch.equal(torch.rand(4), expected)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name])


def test_parents_have_the_last_word():
    class Special(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def reset_parameters(self):
            nn.init.constant_(self.inner.weight, 7.0)

    model = nn.Sequential(Special())
    initialise(model, 0)
    assert (model[0].inner.weight == 7).all()


def test_streams_are_the_same_in_another_process():
    code = "from whence.random import derive; print(derive(1, 'blocks.0.up'))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": ":".join(sys.path)},
    )
    assert int(answer.stdout) == derive(1, "blocks.0.up")
    assert derive(1, "a") != derive(1, "b") != derive(2, "b")


def test_scales():
    """Unit-variance logits, a residual stream that depth does not inflate, content as loud as position."""
    model = ModelConfig(d_model=128, layers=LAYERS, dropout=0).build(VOCAB * 50, VOCAB)
    initialise(model, 0)
    block = model.blocks[0]
    assert model.embedding.weight.std().item() == pytest.approx(math.sqrt(0.5), rel=0.02)
    assert block.mixer.qkv.weight.std().item() == pytest.approx(128**-0.5, rel=0.02)
    assert block.mixer.out.weight.std().item() == pytest.approx((128 * 2 * LAYERS) ** -0.5, rel=0.02)
    assert block.down.weight.std().item() == pytest.approx((512 * 2 * LAYERS) ** -0.5, rel=0.02)
    assert not block.up.bias.any()
