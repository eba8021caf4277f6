"""What the model promises, for every encoding in the registry: a new file is tested by being there."""

from __future__ import annotations

import json

import pytest
import torch

from whence.encodings import ENCODINGS
from whence.models.init import initialise
from whence.models.sequence import ModelConfig

VOCAB, LENGTH = 11, 8
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(params=ENCODINGS.names())
def config(request):
    return ModelConfig(d_model=32, heads=4, dropout=0.0, encoding=request.param)


def make(config, seed=0):
    model = config.build(VOCAB, VOCAB, train_length=LENGTH, max_length=4 * LENGTH)
    initialise(model, seed)
    with torch.no_grad():  # some encodings start at zero, where every test of them would be empty
        for parameter in model.encodings.parameters():
            parameter.add_(torch.linspace(-0.3, 0.3, parameter.numel()).view_as(parameter))
    return model


def data(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCAB, (3, LENGTH), generator=generator)
    positions = torch.randint(1, 4, (3, LENGTH), generator=generator).cumsum(1)
    axes = model.encodings[0].axes
    return tokens, positions if axes == 1 else torch.stack([positions] * axes, -1)


def kinds(model):
    return ("causal",) if model.encodings[0].causal_only else ("causal", "bidirectional")


def test_fused_equals_explicit_with_and_without_padding(config):
    model = make(config)
    tokens, positions = data(model)
    if "score" in model.encodings[0].hooks():
        pytest.skip("attention is always explicit under a score hook")
    for kind in kinds(model):
        model.config = config.model_copy(update={"attention": kind})
        for valid in (None, torch.arange(LENGTH) < torch.tensor([[8], [5], [1]])):
            model.explicit = False
            fused = model(tokens, positions, valid=valid)
            model.explicit = True
            torch.testing.assert_close(fused, model(tokens, positions, valid=valid), **CLOSE)


def test_causal_and_padding_leaks(config):
    model = make(config)
    tokens, positions = data(model)
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % VOCAB
    torch.testing.assert_close(model(tokens, positions)[:, :5], model(changed, positions)[:, :5], rtol=0, atol=0)
    for kind in kinds(model):
        model.config = config.model_copy(update={"attention": kind})
        valid = (torch.arange(LENGTH) < 5).expand(3, -1)
        one, two = model(tokens, positions, valid=valid), model(changed, positions, valid=valid)
        assert one.isfinite().all()
        torch.testing.assert_close(one[:, :5], two[:, :5], rtol=0, atol=0)


def test_rows_do_not_mix(config):
    model = make(config)
    tokens, positions = data(model)
    together = model(tokens, positions)
    for row in range(3):
        torch.testing.assert_close(together[row], model(tokens[row : row + 1], positions[row : row + 1])[0], **CLOSE)


def test_start_is_a_function_of_the_seed(config):
    """Fails for an encoding whose weights no reset_parameters reaches."""
    states = []
    for ambient in (1, 2):
        torch.manual_seed(ambient)
        model = config.build(VOCAB, VOCAB)
        initialise(model, 7)
        states.append(model.state_dict())
    plain = ModelConfig(d_model=32, heads=4, dropout=0.0).build(VOCAB, VOCAB)
    initialise(plain, 7)
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
    for name, value in plain.state_dict().items():
        assert name.startswith("encodings.") or torch.equal(value, states[0][name]), name


def test_training_reaches_every_parameter_in_bfloat16(config):
    model = make(config)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(*data(model)).float().square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_spec_survives_json(config):
    assert ModelConfig.model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config
    assert isinstance(hash(config), int)
