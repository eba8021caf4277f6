"""Who sees whom, and that the fused and the explicit path are the same attention."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.models.model_parts import D_MODEL, ENCODINGS, HEADS, KINDS, Gated, Nowhere, Sloped, batch, build, masks, rope
from whence.encodings import RoPE
from whence.mixers.attention import Attention, AttentionContext, visibility


def visible_by_definition(kind, length, valid=None, prefix=None):
    """The rules, one pair at a time."""
    rows = 1 if valid is None and prefix is None else len(valid if valid is not None else prefix)
    table = torch.zeros(rows, 1, length, length, dtype=torch.bool)
    for row in range(rows):
        for query in range(length):
            for key in range(length):
                may = kind == "bidirectional" or key <= query or (prefix is not None and key < prefix[row])
                real = valid is None or bool(valid[row, key])
                table[row, 0, query, key] = (may and real) or query == key
    return table


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_visibility_follows_its_rules(kind, padded):
    given = masks(kind, padded)
    visible = visibility(kind, 7, **given)
    if not given:
        assert visible is None
    else:
        assert visible is not None
        assert visible.dtype == torch.bool
        expected = visible_by_definition(kind, 7, **given)
        assert torch.equal(visible.expand_as(expected), expected)


def test_prefix_lengths_belong_to_prefix_attention():
    with pytest.raises(ValueError, match="attention='prefix' needs prefix lengths"):
        visibility("prefix", 4)
    with pytest.raises(ValueError, match="attention='causal' takes no prefix lengths"):
        visibility("causal", 4, prefix=torch.tensor([2]))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name != "score"])
def test_fused_path_equals_explicit_path(encoding, kind, padded):
    model, (tokens, positions), given = build(encoding, attention=kind), batch(), masks(kind, padded)
    fused = model(tokens, positions, **given)
    fused.square().mean().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.explicit = True
    explicit = model(tokens, positions, **given)
    explicit.square().mean().backward()
    torch.testing.assert_close(fused, explicit, atol=1e-5, rtol=1e-5)
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad, atol=1e-5, rtol=1e-4, msg=name)


def plain_attention(module, x, positions, encoding, visible):
    """Softmax attention from its formula in float64, one query at a time, for encodings without a score hook."""
    x, width = x.double(), D_MODEL // HEADS
    q, k, v = (x @ w.double().T for w in module.qkv.weight.chunk(3))
    out = torch.zeros_like(x)
    bias = encoding.bias(positions, positions).double() if "bias" in encoding.hooks() else None
    for b in range(len(x)):
        for h in range(HEADS):
            part = slice(h * width, (h + 1) * width)
            qh, kh = (t[b : b + 1, None, :, part] for t in (q, k))
            qh, kh = (t[0, 0] for t in encoding.rotate(qh, kh, positions[b : b + 1]))
            for i in range(x.shape[1]):
                keys = visible[b % len(visible), 0, i].nonzero()[:, 0]
                logits = kh[keys] @ qh[i] / width**0.5
                if bias is not None:
                    logits = logits + bias[b, h, i, keys]
                out[b, i, part] = logits.softmax(0) @ v[b, keys][:, part]
    return out @ module.out.weight.double().T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["none", "rotate", "bias"])
def test_attention_equals_its_formula(encoding, kind):
    torch.manual_seed(0)
    module, code, x = Attention(D_MODEL, HEADS), ENCODINGS[encoding](), torch.randn(3, 7, D_MODEL)
    given, positions = masks(kind, padded=True), batch()[1]
    visible = visibility(kind, 7, **given)
    assert visible is not None
    expected = plain_attention(module, x, positions, code, visible)
    for explicit in (False, True):
        got = module(x, AttentionContext.of(code, positions, kind, visible, explicit))
        torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=1e-5)


def test_score_hook_is_consulted_with_the_mask_it_needs():
    asked = []

    class Spy(Gated):
        def score(self, logits, q, positions_q, positions_k, visible):
            asked.append(visible.expand_as(logits).clone())
            return logits

    module, positions = Attention(D_MODEL, HEADS), torch.arange(5)[None]
    x = torch.randn(2, 5, D_MODEL)
    spied = module(x, AttentionContext.of(Spy(), positions, "causal"))
    assert torch.equal(asked[0][0, 0], torch.ones(5, 5, dtype=torch.bool).tril())
    torch.testing.assert_close(
        spied, module(x, AttentionContext.of(Nowhere(), positions, "causal")), atol=1e-6, rtol=1e-5
    )
    module(x, AttentionContext.of(Spy(), positions, "bidirectional"))
    assert asked[1].all()


def test_order_is_by_index_not_by_position():
    """Positions running backwards leave the causal triangle where it is."""
    model, (tokens, positions) = build("rotate"), batch()
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    backwards = positions.flip(1)
    torch.testing.assert_close(model(tokens, backwards)[:, :-1], model(changed, backwards)[:, :-1], rtol=0, atol=0)


def test_context_is_computed_once_and_shared():
    calls = []

    class Counted(Sloped):
        def bias(self, positions_q, positions_k):
            calls.append(1)
            return super().bias(positions_q, positions_k)

    model = build("bias")
    model.encodings[0] = Counted()
    model(*batch())
    assert len(calls) == 1


def test_context_is_frozen():
    context = AttentionContext.of(rope(), torch.arange(3)[None], "causal")
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.bias = None  # type: ignore[misc]


def test_dropout_hits_attention_weights_in_training_only():
    torch.manual_seed(0)
    module, x, positions = Attention(D_MODEL, HEADS, dropout=0.5), torch.randn(2, 6, D_MODEL), torch.arange(6)[None]
    for explicit in (False, True):
        context = AttentionContext.of(rope(), positions, "causal", None, explicit)
        module.train()
        assert not torch.equal(module(x, context), module(x, context))
        module.eval()
        assert torch.equal(module(x, context), module(x, context))


def test_explicit_path_keeps_float64():
    module = Attention(D_MODEL, HEADS).double()
    x = torch.randn(1, 4, D_MODEL, dtype=torch.float64)
    fused = module(x, AttentionContext.of(rope(), torch.arange(4)[None], "causal"))
    explicit = module(x, AttentionContext.of(rope(), torch.arange(4)[None], "causal", None, True))
    assert fused.dtype == explicit.dtype == torch.float64
    torch.testing.assert_close(fused, explicit, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_rope_turns_pairs_as_complex_numbers(pairing):
    torch.manual_seed(0)
    q, positions, theta = torch.randn(2, 1, 5, 8), torch.rand(2, 5) * 9, 10.0 ** -torch.arange(4)
    turned, _ = RoPE(8, pairing=pairing).rotate(q, q, positions)

    def pairs(x):
        real, imaginary = (x[..., 0::2], x[..., 1::2]) if pairing == "adjacent" else x.chunk(2, -1)
        return torch.complex(real, imaginary)

    expected = pairs(q) * torch.polar(torch.tensor(1.0), positions[:, None, :, None] * theta)
    torch.testing.assert_close(pairs(turned), expected, rtol=1e-5, atol=1e-5)
