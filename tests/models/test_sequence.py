"""The model: what may influence what, and specs that fail early."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.models.model_parts import D_MODEL, ENCODINGS, HEADS, KINDS, LAYERS, VOCAB, Gated, batch, build, masks, rope
from whence.models.init import initialise
from whence.models.layers import loss, pooled
from whence.models.sequence import ModelConfig, SequenceModel

EXACT = {"rtol": 0, "atol": 0}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_padding_content_and_position_never_reach_valid_outputs(encoding, kind):
    model, (tokens, positions), given = build(encoding, attention=kind), batch(), masks(kind, padded=True)
    valid = given["valid"]
    other = torch.where(valid, tokens, (tokens + 1) % VOCAB)
    elsewhere = torch.where(valid, positions, positions + 5)
    one, two = model(tokens, positions, **given), model(other, elsewhere, **given)
    assert one.isfinite().all()
    assert not torch.equal(one, two)  # padding sees itself: the change arrived somewhere
    torch.testing.assert_close(one[valid], two[valid], **EXACT)


@pytest.mark.parametrize("encoding", ["none", "rotate", "bias", "score"])
def test_padded_rows_equal_short_rows(encoding):
    model, (tokens, positions) = build(encoding, attention="bidirectional"), batch()
    valid = torch.ones_like(tokens, dtype=torch.bool)
    valid[:, -2:] = False
    padded = model(tokens, positions, valid=valid)[:, :-2]
    torch.testing.assert_close(padded, model(tokens[:, :-2], positions[:, :-2]), **CLOSE)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=10, deadline=None)
@given(cut=st.integers(1, 6), seed=st.integers(0, 1000))
def test_causal_models_do_not_see_the_future(encoding, cut, seed):
    model, (tokens, positions) = build(encoding), batch(seed=seed)
    changed = tokens.clone()
    changed[:, cut:] = (changed[:, cut:] + 1 + seed % (VOCAB - 1)) % VOCAB
    one, two = model(tokens, positions), model(changed, positions)
    torch.testing.assert_close(one[:, :cut], two[:, :cut], **EXACT)
    assert not torch.equal(one[:, cut], two[:, cut])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_flow_exactly_where_tokens_are_visible(encoding, kind):
    length, prefix = 6, 3
    model = build(encoding, attention=kind, continuous=True, inputs=5)
    inputs = torch.randn(1, length, 5, requires_grad=True)
    extra = {"prefix": torch.tensor([prefix])} if kind == "prefix" else {}
    outputs = model(inputs, torch.arange(length)[None], **extra)
    for query in range(length):
        (gradient,) = torch.autograd.grad(outputs[0, query].sum(), inputs, retain_graph=True)
        reached = (gradient[0].abs().sum(-1) > 0).tolist()
        visible_keys = length if kind == "bidirectional" else max(query + 1, prefix if kind == "prefix" else 0)
        assert reached == [key < visible_keys for key in range(length)]


def test_prefix_of_everything_is_bidirectional_and_of_nothing_is_causal():
    (tokens, positions), rows = batch(), 3
    both, causal = build("rotate", attention="bidirectional"), build("rotate", attention="causal")
    prefix = build("rotate", attention="prefix")
    whole, none = torch.full((rows,), tokens.shape[1]), torch.zeros(rows, dtype=torch.long)
    torch.testing.assert_close(prefix(tokens, positions, prefix=whole), both(tokens, positions), **CLOSE)
    torch.testing.assert_close(prefix(tokens, positions, prefix=none), causal(tokens, positions), **CLOSE)


def test_without_encoding_only_the_causal_mask_knows_the_order():
    (tokens, positions), order = batch(), torch.tensor([3, 1, 4, 0, 6, 5, 2])
    for kind, equivariant in (("bidirectional", True), ("causal", False)):
        model = build("none", attention=kind)
        straight, shuffled = model(tokens, positions)[:, order], model(tokens[:, order], positions)
        assert torch.allclose(straight, shuffled, atol=1e-5) == equivariant


@pytest.mark.parametrize("encoding", ["embed", "rotate", "bias"])
def test_moving_tokens_with_their_positions_is_a_relabelling(encoding):
    """Position is data: a token and its position may stand anywhere in a bidirectional sequence."""
    (tokens, positions), order = batch(), torch.tensor([3, 1, 4, 0, 6, 5, 2])
    model = build(encoding, attention="bidirectional")
    moved = model(tokens[:, order], positions[:, order])
    torch.testing.assert_close(moved, model(tokens, positions)[:, order], **CLOSE)
    assert not torch.allclose(moved, model(tokens[:, order], positions), atol=1e-3)


@pytest.mark.parametrize("kind", ["causal", "bidirectional"])
def test_rope_model_ignores_a_common_shift_but_not_a_stretch(kind):
    model, (tokens, positions) = build("rotate", attention=kind), batch()
    here = model(tokens, positions)
    torch.testing.assert_close(model(tokens, positions + 1000), here, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(model(tokens, positions * 2), here, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_of_a_batch_do_not_mix(encoding, kind):
    model, (tokens, positions), given = build(encoding, attention=kind), batch(), masks(kind, padded=True)
    together = model(tokens, positions, **given)
    for row in range(len(tokens)):
        one = slice(row, row + 1)
        alone = model(tokens[one], positions[one], **{name: value[one] for name, value in given.items()})
        torch.testing.assert_close(together[one], alone, **CLOSE)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_shared_positions_equal_repeated_ones(encoding):
    model, (tokens, positions) = build(encoding), batch()
    shared = positions[:1]
    torch.testing.assert_close(model(tokens, shared), model(tokens, shared.expand(3, -1)), **CLOSE)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("pool", [None, "last", "mean", "first"])
def test_output_shapes(pool, continuous):
    model = build("rotate", pool=pool, continuous=continuous, inputs=5, outputs=2)
    inputs = torch.randn(3, 7, 5) if continuous else torch.randint(5, (3, 7))
    assert model(inputs, torch.arange(7)[None]).shape == ((3, 2) if pool else (3, 7, 2))


def pointing(pool="last", attention="bidirectional", places=2, encoding="embed"):
    plain = build(encoding, attention=attention, pool=pool)
    model = SequenceModel(plain.config, list(plain.encodings), VOCAB, places, "place")
    initialise(model, 0)
    return model


@pytest.mark.parametrize("pool", ["last", "mean", "first"])
@pytest.mark.parametrize("length", [1, 7, 12])
def test_places_are_named_among_as_many_tokens_as_there_are(pool, length):
    tokens, positions = batch(length=length)
    logits = pointing(pool, places=3)(tokens, positions)
    assert logits.shape == (3, 3, length)
    assert logits.isfinite().all()


@pytest.mark.parametrize("pool", ["last", "mean", "first"])
def test_padding_is_never_pointed_at(pool):
    model, (tokens, positions), valid = pointing(pool), batch(), masks("bidirectional", padded=True)["valid"]
    logits = model(tokens, positions, valid=valid)
    assert (logits.isneginf() == ~valid[:, None].expand_as(logits)).all()
    assert valid.gather(1, logits.argmax(-1)).all()
    other = torch.where(valid, tokens, (tokens + 1) % VOCAB)
    torch.testing.assert_close(model(other, positions, valid=valid), logits, **EXACT)
    alone = model(tokens[:1, :-2], positions[:1, :-2])
    torch.testing.assert_close(logits[:1, :, :-2], alone, **CLOSE)
    targets = valid.int().argmax(1)[:, None].expand(-1, 2)
    error = loss("classification", logits, targets, torch.ones(3, 2, dtype=torch.bool))
    assert error.isfinite()
    error.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_every_place_has_a_question_of_its_own_and_all_of_it_is_trained():
    model, (tokens, positions) = pointing(), batch()
    logits = model(tokens, positions)
    assert not torch.allclose(logits[:, 0], logits[:, 1], atol=1e-3)
    loss("classification", logits, torch.tensor([[0, 6], [1, 5], [2, 4]])).backward()
    for name, parameter in model.named_parameters():
        if name != "head.key.bias":  # the same for all tokens: it moves no share
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_a_pointer_learns():
    """Where does symbol 0 stand?"""
    torch.manual_seed(0)
    model = pointing(places=1, encoding="none")
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        tokens, where = torch.randint(1, VOCAB, (32, 8)), torch.randint(8, (32, 1))
        tokens.scatter_(1, where, 0)
        logits = model(tokens, torch.arange(8)[None])
        error = loss("classification", logits, where)
        optimiser.zero_grad()
        error.backward()
        optimiser.step()
    assert (logits.argmax(-1) == where).float().mean() > 0.95


def test_pooling_counts_valid_tokens_only():
    x = torch.arange(2 * 4 * 1.0).view(2, 4, 1)
    valid = torch.tensor([[True, True, False, False], [False, True, True, True]])
    assert pooled(x, "last", valid).flatten().tolist() == [1, 7]
    assert pooled(x, "first", valid).flatten().tolist() == [0, 5]
    assert pooled(x, "mean", valid).flatten().tolist() == [0.5, 6]
    assert pooled(x, "last", None).flatten().tolist() == [3, 7]
    assert pooled(x, "first", None).flatten().tolist() == [0, 4]
    assert pooled(x, "mean", None).flatten().tolist() == [1.5, 5.5]
    assert pooled(x, "mean", torch.zeros_like(valid)).isfinite().all()


@pytest.mark.parametrize("pool", ["last", "mean", "first"])
def test_pooled_outputs_do_not_depend_on_padding(pool):
    model, (tokens, positions) = build("rotate", attention="bidirectional", pool=pool), batch()
    valid = torch.ones_like(tokens, dtype=torch.bool)
    valid[:, -2:] = False
    padded = model(tokens, positions, valid=valid)
    torch.testing.assert_close(padded, model(tokens[:, :-2], positions[:, :-2]), **CLOSE)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_autocast_is_close_to_float32(encoding, kind):
    model, (tokens, positions), given = build(encoding, attention=kind), batch(), masks(kind, padded=True)
    full = model(tokens, positions, **given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(tokens, positions, **given)
    half.float().square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(half.float(), full, rtol=0.1, atol=0.15)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_whole_model_in_bfloat16_runs(encoding):
    model = build(encoding).to(torch.bfloat16)
    assert model(*batch()).dtype == torch.bfloat16


def test_transform_is_applied_once_at_the_entrance():
    calls = []

    def double(positions, *, training):
        calls.append(training)
        return positions * 2

    plain = build("rotate")
    model = SequenceModel(plain.config, [rope()], VOCAB, VOCAB, transform=double)
    model.load_state_dict(plain.state_dict())
    tokens, positions = batch()
    torch.testing.assert_close(model(tokens, positions), plain(tokens, positions * 2), **EXACT)
    model.eval()(tokens, positions)
    assert calls == [True, False]


def test_per_layer_encodings_are_separate_and_named():
    model = build("score")
    assert len(model.encodings) == LAYERS
    model(*batch()).sum().backward()
    gradients = [encoding.weight.grad for encoding in model.encodings]
    assert all(gradient.abs().sum() > 0 for gradient in gradients)
    assert not torch.equal(*gradients)
    with pytest.raises(ValueError, match="3 encodings for 2 layers"):
        SequenceModel(model.config, [Gated() for _ in range(3)], VOCAB, VOCAB)


def test_every_parameter_is_trained():
    for encoding in ENCODINGS:
        model = build(encoding)
        model(*batch()).square().mean().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_a_model_learns():
    """Return the token two places back: impossible without position, easy with it."""
    torch.manual_seed(0)
    model = build("rotate", seed=1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        tokens = torch.randint(VOCAB, (32, 8))
        predicted = model(tokens, torch.arange(8)[None])
        scored = torch.ones_like(tokens, dtype=torch.bool)
        scored[:, :2] = False
        error = loss("classification", predicted, tokens.roll(2, 1), scored)
        optimiser.zero_grad()
        error.backward()
        optimiser.step()
    assert error.item() < 0.3


@pytest.mark.parametrize("shape", [(3, 6), (2, 7), (7,)])
def test_positions_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"positions have shape .* for inputs of \(batch, length\) = \(3, 7\)"):
        build("none")(batch()[0], torch.zeros(shape))


def test_grid_encodings_need_grid_positions():
    config = ModelConfig(d_model=D_MODEL, heads=HEADS, encoding="rope:layout=axial")  # type: ignore[arg-type]
    model = config.build(VOCAB, VOCAB)
    tokens, positions = batch()
    assert model(tokens, torch.stack([positions, positions], -1)).shape == (3, 7, VOCAB)
    with pytest.raises(ValueError, match=r"reads 2 position axes"):
        model(tokens, positions)


def test_meta_construction_allocates_nothing_and_can_be_filled():
    with torch.device("meta"):
        model = ModelConfig().build(VOCAB, VOCAB)
    assert all(p.is_meta for p in model.parameters())
    initialise(model.to_empty(device="cpu"), 3)
    twin = ModelConfig().build(VOCAB, VOCAB)
    initialise(twin, 3)
    tokens, positions = batch()
    torch.testing.assert_close(model.eval()(tokens, positions), twin.eval()(tokens, positions), **EXACT)


def test_specs_survive_json_and_hash():
    config = ModelConfig(d_model=64, pool="mean", encoding="rope:scaling=yarn,factor=4")  # type: ignore[arg-type]
    dumped = config.model_dump(mode="json")
    assert dumped["encoding"]["scaling"] == "yarn"
    assert dumped["encoding"]["factor"] == 4
    reread = ModelConfig.model_validate(json.loads(json.dumps(dumped)))
    assert reread == config
    assert hash(reread) == hash(config)
    assert reread != ModelConfig(d_model=64, pool="mean")
    assert ModelConfig.model_validate_json(config.model_dump_json()) == config


def test_every_field_is_described():
    assert all(field.description for field in ModelConfig.model_fields.values())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 130, "heads": 4}, "heads: 4 does not divide d_model=130. Nearest allowed: 2 or 5"),
        ({"d_model": 7, "heads": 9}, "Nearest allowed: 7"),
        ({"d_model": 12, "heads": 4}, "head_dim: 3"),
        ({"encoding": {"name": "rope", "layout": "mixed", "scaling": "yarn"}}, "scaling='yarn'"),
    ],
)
def test_bad_specs_are_refused_before_building(fields, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**fields).build(VOCAB, VOCAB)


@pytest.mark.parametrize(
    "fields", [{"dropuot": 0.1}, {"dropout": 1.0}, {"layers": 0}, {"attention": "both"}, {"encoding": "rope:bse=3"}]
)
def test_fields_are_validated(fields):
    with pytest.raises(ValidationError):
        ModelConfig(**fields)


@pytest.mark.parametrize("kind", ["bidirectional", "prefix"])
@pytest.mark.parametrize("encoding", ["xpos", "cope", "t5:sides=past"])
def test_causal_only_encodings_refuse_other_attention(kind, encoding):
    with pytest.raises(ValueError, match=f"attention: '{kind}' does not go with {encoding}. Allowed: causal."):
        ModelConfig(attention=kind, encoding=encoding).build(VOCAB, VOCAB)
    ModelConfig(attention="causal", encoding=encoding).build(VOCAB, VOCAB)


def test_transforms_reach_the_encoding_and_size_its_tables():
    shifted = ModelConfig(encoding="learned", positions="shifted:reach=40").build(
        VOCAB, VOCAB, train_length=8, max_length=16
    )
    assert len(shifted.encodings[0].table) == 48
    randomized = ModelConfig(encoding="learned", positions="randomized:span=99").build(
        VOCAB, VOCAB, train_length=8, max_length=16
    )
    assert len(randomized.encodings[0].table) == 99
    squeezed = ModelConfig(encoding="learned", positions="interpolated").build(
        VOCAB, VOCAB, train_length=8, max_length=16
    )
    assert len(squeezed.encodings[0].table) == 8
    tokens, positions = torch.randint(VOCAB, (2, 16)), torch.arange(16)[None]
    for model in (shifted, randomized, squeezed):
        for _ in range(20):
            assert model.train()(tokens[:, :8], positions[:, :8]).isfinite().all()
        assert model.eval()(tokens, positions).isfinite().all()
    same = ModelConfig(positions="randomized", dropout=0.0).build(VOCAB, VOCAB)
    assert not torch.equal(same(tokens, positions), same(tokens, positions))  # a new draw each time
    with pytest.raises(ValueError, match="has no effect on none"):
        ModelConfig(encoding="none", positions="randomized").build(VOCAB, VOCAB)
    with pytest.raises(ValueError, match="span=12 has no room for max_length=16"):
        ModelConfig(positions="randomized:span=12").build(VOCAB, VOCAB, train_length=8, max_length=16)


def test_t5_uses_all_its_buckets_where_only_the_past_is_seen():
    causal, both = (
        ModelConfig(encoding="t5", attention=a).build(VOCAB, VOCAB).encodings[0] for a in ("causal", "bidirectional")
    )
    assert (causal.sides, both.sides) == ("past", "both")


def test_losses_score_what_they_are_told():
    prediction = torch.tensor([[[2.0, 0.0], [0.0, 5.0]]], requires_grad=True)
    target, scored = torch.tensor([[0, -7]]), torch.tensor([[True, False]])
    expected = -torch.log_softmax(torch.tensor([2.0, 0.0]), 0)[0]
    torch.testing.assert_close(loss("classification", prediction, target, scored), expected)
    values = torch.tensor([[[1.0, 0.0], [float("nan"), 0.0]]])
    torch.testing.assert_close(loss("regression", prediction, values, scored), torch.tensor(0.5))
    torch.testing.assert_close(loss("classification", prediction[:, 0], target[:, 0]), expected)
    nothing = loss("regression", prediction, values, torch.zeros_like(scored))
    nothing.backward()
    assert nothing.item() == 0
    assert not prediction.grad.any()


def test_losses_refuse_shapes_that_would_broadcast():
    prediction = torch.zeros(2, 3, 1)
    with pytest.raises(ValueError, match="regression target has shape"):
        loss("regression", prediction, torch.zeros(2, 3))
    with pytest.raises(ValueError, match="classification target has shape"):
        loss("classification", prediction, torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="scored has shape"):
        loss("regression", prediction, prediction, torch.ones(2, 3, 1, dtype=torch.bool))
