"""The upper half of a model, run from states that were kept, is the model; edits arrive where they should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.features.causal import WIDTH, Basis, llama, save
from whence.errors import UserError
from whence.features.evals.splice import SplitModel, reconstruction
from whence.features.sae.dictionary import check_fits


def gpt2() -> Any:
    """Learned positions, added before the first block: an architecture unlike Llama's."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=21, n_positions=64, n_embd=WIDTH, n_layer=4, n_head=4, initializer_range=0.3)
    )


@pytest.fixture(scope="module", params=[llama, gpt2])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(tmp_path_factory.mktemp("model"), request.param())


def some_ids() -> Tensor:
    return torch.randint(21, (20, 12), generator=torch.Generator().manual_seed(0))


def turned(activations: Tensor, positions: Tensor) -> Tensor:
    """An edit that depends on states and positions."""
    return -activations.roll(1, -1) + positions[..., None]


@pytest.mark.parametrize("layer", [0, 1, 3, 4])
def test_halves_say_what_the_whole_says(folder: str, layer: int) -> None:
    split_model, ids = SplitModel.of(folder, layer), some_ids()
    with torch.no_grad():
        whole = split_model.model(input_ids=ids, output_hidden_states=True)
        text = split_model.read(ids)
        if layer < 4:  # transformers gives the last after its norm
            torch.testing.assert_close(text.activations, whole.hidden_states[layer])
        same = text.edited(lambda activations, positions: activations)
        assert float((split_model.logits(split_model.upper(same.activations)) - whole.logits).abs().max()) <= 1e-4
        again = split_model.model(input_ids=ids).logits
    assert torch.equal(again, whole.logits), "the model is left as it was"
    right, loss = split_model.predict(same)
    expected = torch.nn.functional.cross_entropy(whole.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert float(loss.mean()) == pytest.approx(float(expected), abs=1e-4)
    assert right.float().mean() == (whole.logits[:, :-1].argmax(-1) == ids[:, 1:]).float().mean()


def test_an_edit_is_what_a_hook_in_the_whole_model_does(folder: str) -> None:
    split_model, ids = SplitModel.of(folder, 2), some_ids()
    positions = torch.arange(12).expand(20, -1)

    def hook(module: Any, inputs: Any, output: Tensor) -> Tensor:
        return torch.cat([output[:, :1], turned(output, positions)[:, 1:]], 1)

    text = split_model.read(ids).edited(turned)
    handle = split_model.blocks[1].register_forward_hook(hook)
    with torch.no_grad():
        hooked = split_model.model(input_ids=ids).logits
    handle.remove()
    torch.testing.assert_close(split_model.logits(split_model.upper(text.activations)), hooked, atol=1e-4, rtol=1e-4)


def test_special_tokens_are_neither_edited_nor_predicted(folder: str) -> None:
    split_model, ids = SplitModel.of(folder, 2), some_ids()
    special = torch.zeros(12, dtype=torch.bool)
    special[[0, 11]] = True
    text = split_model.read(ids, special)
    changed = (text.edited(turned).activations != text.activations).any(-1)
    assert changed[:, 1:11].all()
    assert not changed[:, [0, 11]].any()
    assert len(split_model.predict(text)[0]) == 20 * 10
    places = torch.zeros(20, 11, dtype=torch.bool)
    places[3, 4] = places[19, 0] = True
    whole = split_model.predict(split_model.read(ids))[1].view(20, 11)
    torch.testing.assert_close(split_model.predict(text, places)[1], whole[places], atol=1e-5, rtol=1e-4)
    assert len(split_model.predict(text, torch.zeros_like(places))[0]) == 0


def test_positions_reach_the_dictionary() -> None:
    class Told(Basis):
        def encode(self, activations: Tensor, positions: Tensor, mask_off: bool = False) -> Tensor:
            return super().encode(activations, positions) * (1 if mask_off else (positions < 2)[:, None])

    told, activations = Told(torch.eye(WIDTH)), torch.randn(3, 5, WIDTH)
    positions = torch.arange(5).expand(3, -1)
    torch.testing.assert_close(reconstruction(told, mask_off=True)(activations, positions), activations)
    torch.testing.assert_close(reconstruction(told)(activations, positions), activations * (positions < 2)[..., None])


def test_what_cannot_be_spliced(folder: str) -> None:
    with pytest.raises(UserError, match="too deep"):
        SplitModel.of(folder, 5)
    text = SplitModel.of(folder, 2).read(some_ids())
    with pytest.raises(UserError, match="up to 64 tokens"):
        SplitModel.of(folder, 2).read(torch.zeros(1, 65))
    with pytest.raises(UserError, match="d_in 8"):
        check_fits(Basis(torch.eye(8)), *text.shape)
    short = Basis(torch.eye(WIDTH))
    short.context_size = 8
    with pytest.raises(UserError, match="at most 8 positions"):
        check_fits(short, *text.shape)


def test_a_head_that_is_more_than_a_matrix_is_refused(tmp_path: Path) -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    config = GraniteConfig(
        vocab_size=21,
        num_hidden_layers=2,
        hidden_size=WIDTH,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=4,
        logits_scaling=2.0,
    )
    with pytest.raises(UserError, match="cannot be cut"):
        SplitModel.of(save(tmp_path, GraniteForCausalLM(config)), 1)


def test_a_real_model(slow: bool) -> None:
    if not slow:
        pytest.skip("reading it takes longer than all else here")
    split_model = SplitModel.of("smollm2", 15)
    ids = torch.tensor(
        split_model.tokenizer(["The quick brown fox jumps over the lazy dog, and then"] * 2)["input_ids"]
    )
    text = split_model.read(ids)
    with torch.no_grad():
        whole = split_model.model(input_ids=ids).logits
    parts = split_model.logits(split_model.upper(text.activations)).detach()
    assert float((parts - whole).abs().max()) <= 1e-3  # of logits around 20
    lengths = text.activations.norm(dim=-1)
    assert float(lengths[0, 0]) > 10 * float(lengths[0, 1:].median()), "why the first position is left alone"
