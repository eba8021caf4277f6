"""Capture records what models compute, on models we did not write, and leaves them as they were."""

from __future__ import annotations

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.models.model_parts import D_MODEL, HEADS, KINDS, VOCAB, batch, build, masks
from whence.models.capture import attention_weights, blocks, capture

os.environ["HF_HUB_OFFLINE"] = "1"
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def hooks(model):
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]


def run(model, *args, **named):
    """Under capture; asserts that the output is bit-identical to a run without, and that nothing stays behind."""
    before, fast = hooks(model), torch.backends.mha.get_fastpath_enabled()
    torch.manual_seed(0)
    plain = model(*args, **named)
    torch.manual_seed(0)
    with capture(model) as cache:
        captured = model(*args, **named)
    assert torch.equal(first(plain), first(captured))
    assert hooks(model) == before
    assert torch.backends.mha.get_fastpath_enabled() == fast
    for weights in cache.attention.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), **CLOSE)
        assert not weights.requires_grad
    return cache


def first(output):
    return output if isinstance(output, torch.Tensor) else output[0]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["rotate", "bias", "score"])
def test_own_model(encoding, kind, padded):
    model, (tokens, positions), given = build(encoding, attention=kind, dropout=0.1), batch(), masks(kind, padded)
    cache = run(model, tokens, positions, **given)
    assert list(cache.attention) == ["blocks.0.mixer", "blocks.1.mixer"]
    assert list(cache.hidden) == ["blocks.0", "blocks.1"]
    assert cache.hidden["blocks.1"].shape == (3, 7, D_MODEL)
    for weights in cache.attention.values():
        assert weights.shape == (3, HEADS, 7, 7)
        if kind == "causal":
            assert not weights.triu(1).any()
        if padded:
            stray = weights[0, :, :5, 5:]
            assert not stray.any()


@pytest.mark.parametrize("kind", KINDS)
def test_fused_and_explicit_attention_look_the_same(kind):
    model, (tokens, positions), given = build("bias", attention=kind), batch(), masks(kind, padded=True)
    fused = run(model, tokens, positions, **given)
    model.explicit = True
    explicit = run(model, tokens, positions, **given)
    for name, weights in fused.attention.items():
        torch.testing.assert_close(weights, explicit.attention[name], **CLOSE)


def test_weights_times_values_are_the_attention_output():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    mask = torch.rand(2, 1, 5, 6) > 0.4
    mask[0, 0, 2] = False  # a query that sees nothing
    for given in (
        {"attn_mask": mask},
        {"attn_mask": torch.randn(5, 6), "scale": 0.3},
        {"is_causal": True},
        {},
    ):
        expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **given)
        weights = attention_weights(q, k, v, enable_gqa=True, **given)
        torch.testing.assert_close(weights @ v.repeat_interleave(2, 1), expected, **CLOSE)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_torch_encoder(mode, norm_first):
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    getattr(model, mode)()
    x, mask = torch.randn(2, 5, 16), nn.Transformer.generate_square_subsequent_mask(5)
    cache = run(model, x, mask=mask, is_causal=True)
    assert list(cache.attention) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert list(cache.hidden) == ["layers.0", "layers.1"]
    for weights in cache.attention.values():
        assert weights.shape == (2, 4, 5, 5)
        assert not weights.triu(1).any()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torch_encoder_on_its_fused_inference_path():
    """The fused path hides its attention: capture turns it off, which moves the output by rounding only."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 4 + [True]])
    with torch.inference_mode():
        plain = model(x, src_key_padding_mask=padding)
        with capture(model) as cache:
            captured = model(x, src_key_padding_mask=padding)
    assert len(cache.attention) == 2
    assert not cache.attention["layers.0.self_attn"][1, :, :, -1].any()
    torch.testing.assert_close(plain[~padding], captured[~padding], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_torch_multihead_attention_keeps_its_own_answer(need_weights, batched):
    module = nn.MultiheadAttention(16, 4, batch_first=True)
    model, x = nn.ModuleDict({"mha": module}), torch.randn(2, 5, 16) if batched else torch.randn(5, 16)
    plain = module(x, x, x, need_weights=need_weights)
    with capture(model) as cache:
        captured = module(x, x, x, need_weights=need_weights)
    assert torch.equal(plain[0], captured[0])
    assert (captured[1] is None) == (not need_weights)
    assert cache.attention["mha"].shape == (2 if batched else 1, 4, 5, 5)
    if need_weights:
        torch.testing.assert_close(captured[1], plain[1], rtol=0, atol=0)
        torch.testing.assert_close(cache.attention["mha"].mean(1).view_as(plain[1]), plain[1], **CLOSE)


def bert(implementation):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=16,
        attn_implementation=implementation,
    )
    torch.manual_seed(0)
    return transformers.BertModel(config).eval()


def llama(implementation):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        attn_implementation=implementation,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("make", "names", "layers"),
    [
        (bert, "encoder.layer.{}.attention.self", "encoder.layer.{}"),
        (llama, "model.layers.{}.self_attn", "model.layers.{}"),
    ],
)
def test_transformers_models(make, names, layers, implementation):
    tokens, _ = batch()
    given = {"input_ids": tokens, "attention_mask": torch.tensor([[1] * 7, [1] * 7, [1] * 5 + [0] * 2])}
    cache = run(make(implementation), **given, return_dict=False)
    truth = make("eager")(**given, output_attentions=True, output_hidden_states=True)
    assert list(cache.attention) == [names.format(0), names.format(1)]
    assert list(cache.hidden) == [layers.format(0), layers.format(1)]
    for weights, expected in zip(cache.attention.values(), truth.attentions, strict=True):
        torch.testing.assert_close(weights, expected, **CLOSE)
    torch.testing.assert_close(cache.hidden[layers.format(0)], truth.hidden_states[1], rtol=1e-4, atol=1e-5)


def test_autocast_does_not_blur_the_weights():
    model, (tokens, positions) = build("rotate"), batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cache = run(model, tokens, positions)
    assert cache.attention["blocks.0.mixer"].dtype == torch.float32


def test_hooks_and_modes_are_removed_after_an_exception():
    model, (tokens, positions) = build("rotate"), batch()
    before = hooks(model)
    with pytest.raises(ValueError, match="positions"), capture(model) as cache:
        model(tokens, positions[:, :2])
    assert hooks(model) == before
    assert torch.backends.mha.get_fastpath_enabled()
    model(tokens, positions)
    assert not cache.attention


def test_a_module_that_fails_and_is_caught_does_not_confuse_names():
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.fails, self.inner = Fails(), nn.Identity()

        def forward(self, x):
            try:
                self.fails(x)
            except RuntimeError:
                x = self.inner(x)
            return F.softmax(x, dim=-1)

    model = nn.ModuleDict({"outer": Outer()})
    with capture(model) as cache:
        model["outer"](torch.randn(1, 2, 3, 3))
    assert list(cache.attention) == ["outer"]


@pytest.mark.parametrize(
    "softmax",
    [
        lambda x: F.softmax(x, dim=-1),
        lambda x: torch.softmax(x, 3),
        lambda x: x.softmax(dim=-1),
        lambda x: F.softmax(x, -1, dtype=torch.float64),
        nn.Softmax(dim=-1),
    ],
)
def test_every_way_to_write_a_softmax(softmax):
    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.softmax = softmax

        def forward(self, x):
            F.softmax(x, dim=1)  # over something else
            F.softmax(x[0], dim=-1)  # three dimensions
            return self.softmax(x)

    x = torch.randn(2, 3, 4, 4)
    with capture(nn.ModuleDict({"one": Uses()})) as cache:
        model = Uses()
        model(x)  # not ours, but inside the block: it counts as the model's free functions
    assert list(cache.attention) == [""]
    model = nn.ModuleDict({"one": Uses()})
    with capture(model) as cache:
        model["one"](x)
        model["one"](x + 1)
    torch.testing.assert_close(cache.attention["one"], [softmax(x), softmax(x + 1)])


def test_records_survive_what_the_model_does_in_place():
    class Overwrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Identity()])

        def forward(self, x):
            weights = F.softmax(x, dim=-1)
            self.layers[0](x).zero_()
            weights.zero_()
            return x

    x = torch.randn(1, 1, 2, 2)
    model, original = Overwrites(), x.clone()
    with capture(model) as cache:
        model(x)
    torch.testing.assert_close(cache.hidden["layers.0"], original)
    assert cache.attention[""].sum() > 0


def test_choosing_hidden_states():
    model, (tokens, positions) = build("rotate"), batch()
    with capture(model, hidden=["blocks.?.mlp_norm", "embedding", ""], attention=False) as cache:
        output = model(tokens, positions)
    assert list(cache.hidden) == ["embedding", "blocks.0.mlp_norm", "blocks.1.mlp_norm", ""]
    assert torch.equal(cache.hidden[""], output)
    assert not cache.attention
    with capture(model, hidden=(), device="cpu") as cache:
        model(tokens, positions)
    assert not cache.hidden
    assert cache.attention["blocks.0.mixer"].device.type == "cpu"
    with pytest.raises(ValueError, match=r"no module is called 'block\.0'"), capture(model, hidden="block.0"):
        pass
    assert sum(hooks(model)) == 0


def test_blocks_are_the_outermost_stacks():
    inner = nn.Sequential(nn.Linear(2, 2), nn.GELU())
    assert blocks(nn.Sequential(inner, copy.deepcopy(inner))) == ["0", "1"]
    assert blocks(nn.ModuleDict({"a": nn.ModuleList([inner]), "b": nn.Linear(2, 2)})) == ["a.0"]
    assert blocks(nn.Linear(2, 2)) == []


def test_gradients_pass_through_untouched():
    model, (tokens, positions) = build("rotate"), batch()
    model(tokens, positions).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    with capture(model):
        model(tokens, positions).square().sum().backward()
    for name, p in model.named_parameters():
        assert torch.equal(p.grad, expected[name])
