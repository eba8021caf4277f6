"""Each encoding against an independent implementation: a public library, or plain loops in float64 written here."""

from __future__ import annotations

import cmath
import math
import warnings

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import Tensor
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from whence.encodings import FIRE, KERPLE, T5, ALiBi, CoPE, RoPE, Sandwich, Shaw, Sinusoidal, XPos
from whence.encodings.alibi import slopes

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated", category=DeprecationWarning)
    from x_transformers import x_transformers

HEADS, DIM = 4, 16
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
    return module


def queries_and_keys(length: int, batch: int = 1) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, batch, HEADS, length, DIM)
    return q, k


def llama(length: int, **rope_parameters: object) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=HEADS * DIM,
        num_attention_heads=HEADS,
        max_position_embeddings=length,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, **rope_parameters},
    )


# --- RoPE


def test_rope_halves_is_llama() -> None:
    q, k = queries_and_keys(12, batch=2)
    positions = torch.stack([torch.arange(12), torch.arange(12) * 7 + 100])
    cos, sin = LlamaRotaryEmbedding(llama(2048))(q, positions)
    assert_close(RoPE(DIM).rotate(q, k, positions), apply_rotary_pos_emb(q, k, cos, sin), rtol=1e-3, atol=1e-4)


def test_rope_adjacent_is_rotary_embedding_torch() -> None:
    q, k = queries_and_keys(12)
    theirs = RotaryEmbedding(DIM)
    ours = RoPE(DIM, pairing="adjacent").rotate(q, k, torch.arange(12)[None])
    assert_close(ours, (theirs.rotate_queries_or_keys(q), theirs.rotate_queries_or_keys(k)), **CLOSE)


@pytest.mark.parametrize("length", [16, 64, 300])
@pytest.mark.parametrize(("scaling", "theirs"), [("linear", "linear"), ("dynamic_ntk", "dynamic"), ("yarn", "yarn")])
def test_rope_scaling_is_transformers(scaling: str, theirs: str, length: int) -> None:
    trained, factor = 64, 4.0
    config = llama(trained, rope_type=theirs, factor=factor, original_max_position_embeddings=trained)
    theta, size = ROPE_INIT_FUNCTIONS[theirs](config, torch.device("cpu"), seq_len=length)
    angles = (torch.arange(length)[:, None] * theta).repeat(1, 2)[None]
    q, k = queries_and_keys(length)
    expected = apply_rotary_pos_emb(q, k, angles.cos() * size, angles.sin() * size)
    rope = RoPE(DIM, train_length=trained, scaling=scaling, factor=factor)
    assert_close(rope.rotate(q, k, torch.arange(length)[None]), expected, rtol=1e-3, atol=1e-4)


def test_rope_yarn_at_a_llama_size() -> None:
    """At head_dim 128 and 4096 positions the ramp has many steps; the small case above barely has one."""
    config = LlamaConfig(
        hidden_size=128,
        num_attention_heads=1,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 4096,
        },
    )
    theta, _ = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    ours = RoPE(128, train_length=4096, scaling="yarn", factor=8).angles(torch.ones(1, 1))
    assert_close(ours.flatten().float(), theta, rtol=1e-5, atol=0)
    plain = RoPE(128).angles(torch.ones(1, 1)).flatten()
    ratio = plain / ours.flatten()
    assert ((ratio > 1.001) & (ratio < 7.999)).sum() > 10
    assert ratio[0] == pytest.approx(1)
    assert ratio[-1] == pytest.approx(8)


def test_rope_ntk_is_rotary_embedding_torch() -> None:
    q, k = queries_and_keys(40)
    theirs = RotaryEmbedding(DIM, theta_rescale_factor=4.0)
    ours, _ = RoPE(DIM, pairing="adjacent", scaling="ntk", factor=4).rotate(q, k, torch.arange(40)[None])
    assert_close(ours, theirs.rotate_queries_or_keys(q), **CLOSE)


def test_rope_axial_is_rotary_embedding_torch() -> None:
    height, width = 5, 7
    freqs = RotaryEmbedding(DIM // 2).get_axial_freqs(height, width)
    q, k = queries_and_keys(height * width)
    expected = apply_rotary_emb(freqs, q.unflatten(2, (height, width))).flatten(2, 3)
    grid = torch.cartesian_prod(torch.arange(height), torch.arange(width))[None]
    assert_close(RoPE(DIM, pairing="adjacent", layout="axial").rotate(q, k, grid)[0], expected, **CLOSE)


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_rope_mixed_against_complex_numbers(pairing: str) -> None:
    rope = randomised(RoPE(DIM, heads=HEADS, layout="mixed", pairing=pairing))
    q, k = queries_and_keys(9, batch=2)
    positions = torch.randn(2, 9, 2) * 5
    ours = rope.rotate(q, k, positions)[0]
    for b, h, n, i in torch.cartesian_prod(*map(torch.arange, (2, HEADS, 9, DIM // 2))).tolist():
        first, second = (2 * i, 2 * i + 1) if pairing == "adjacent" else (i, i + DIM // 2)
        f_x, f_y = rope.directions[:, h, i].tolist()
        x, y = positions[b, n].tolist()
        pair = complex(q[b, h, n, first].item(), q[b, h, n, second].item()) * cmath.exp(1j * (f_x * x + f_y * y))
        assert ours[b, h, n, first].item() == pytest.approx(pair.real, abs=1e-4)
        assert ours[b, h, n, second].item() == pytest.approx(pair.imag, abs=1e-4)


# --- xPos


@pytest.mark.parametrize("length", [11, 12, 700])
def test_xpos_is_x_transformers(length: int) -> None:
    freqs, scale = x_transformers.RotaryEmbedding(DIM, use_xpos=True)(torch.arange(length))
    q, k = queries_and_keys(length)
    expected_q = x_transformers.apply_rotary_pos_emb(q, freqs, scale)
    expected_k = x_transformers.apply_rotary_pos_emb(k, freqs, scale**-1.0)
    ours = XPos(DIM, pairing="adjacent").rotate(q, k, torch.arange(length)[None])
    assert_close(ours, (expected_q, expected_k), rtol=1e-3, atol=2e-4)


def test_xpos_fades_behind_and_grows_ahead() -> None:
    """Why it is causal only."""
    ones = torch.ones(1, 1, 3, DIM)
    q, k = XPos(DIM, scale_base=8).rotate(ones, ones, torch.tensor([[0, 100, 200]]))
    plain_q, plain_k = RoPE(DIM).rotate(ones, ones, torch.tensor([[0, 100, 200]]))
    zeta = [(2 * i + 0.4 * DIM) / (1.4 * DIM) for i in range(DIM // 2)]
    pairs = [0, DIM // 2]  # the first pair, in halves
    ratio = (q[..., 1, pairs] * k[..., 0, pairs]).sum() / (plain_q[..., 1, pairs] * plain_k[..., 0, pairs]).sum()
    assert ratio.item() == pytest.approx(zeta[0] ** (100 / 8), rel=1e-3)
    ahead = (q[..., 1, pairs] * k[..., 2, pairs]).sum() / (plain_q[..., 1, pairs] * plain_k[..., 2, pairs]).sum()
    assert ahead.item() == pytest.approx(zeta[0] ** (-100 / 8), rel=1e-3)


# --- biases


def test_alibi_slopes() -> None:
    assert slopes(4) == [2**-2, 2**-4, 2**-6, 2**-8]
    assert slopes(6) == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    assert slopes(12) == pytest.approx([2.0**-h for h in range(1, 9)] + [0.70711, 0.35355, 0.17678, 0.08839], rel=1e-4)
    for heads in range(1, 40):
        assert len(slopes(heads)) == len(set(slopes(heads))) == heads


@pytest.mark.parametrize("heads", [1, 4, 6, 12])
@pytest.mark.parametrize("sides", ["both", "past"])
def test_alibi_is_bloom(heads: int, sides: str) -> None:
    masked = torch.ones(10, 10, dtype=torch.bool).triu(1)
    theirs = build_alibi_tensor(torch.ones(1, 10), heads, torch.float32).view(1, heads, 1, 10).expand(-1, -1, 10, -1)
    ours = ALiBi(heads, sides=sides).bias(torch.arange(10)[None], torch.arange(10)[None])
    content = torch.randn(1, heads, 10, 10)
    weights = [(content + bias).masked_fill(masked, -math.inf).softmax(-1) for bias in (ours, theirs)]
    assert_close(*weights, **CLOSE)


def test_alibi_sides() -> None:
    positions = torch.tensor([[0, 2, 7]])
    both, past, split = (ALiBi(4, sides=sides).bias(positions, positions)[0] for sides in ("both", "past", "split"))
    assert both[1].tolist() == [[0, -0.125, -0.4375], [-0.125, 0, -0.3125], [-0.4375, -0.3125, 0]]
    assert past[1].tolist() == [[0, 0, 0], [-0.125, 0, 0], [-0.4375, -0.3125, 0]]
    rate = 2**-4  # the first of two slopes serves heads 0 and 1
    assert split[0, 2].tolist() == [-7 * rate, -5 * rate, 0]
    assert (split[0].softmax(-1).triu(1) == 0).all()
    assert split[1, 0].tolist() == [0, -2 * rate, -7 * rate]
    assert (split[1].softmax(-1).tril(-1) == 0).all()
    assert_close(split[3], split[2].T)


def test_alibi_sharpness_and_learning() -> None:
    positions = torch.arange(5)[None]
    plain, sharp = ALiBi(4).bias(positions, positions), ALiBi(4, sharpness=3, learnable=True)
    assert_close(sharp.bias(positions, positions), 3 * plain)
    with torch.no_grad():
        sharp.log_slopes.sub_(50)
    assert (sharp.bias(positions, positions) <= 0).all()


@pytest.mark.parametrize("sides", ["both", "past"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (10, 1000), (64, 4096)])
def test_t5_buckets_are_transformers(sides: str, buckets: int, max_distance: int) -> None:
    """Where a bucket begins at a whole distance, their logarithm in float32 may stay in the one below."""
    away = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(-away, sides == "both", buckets, max_distance)
    ours = T5(HEADS, sides=sides, buckets=buckets, max_distance=max_distance).buckets_of(away)
    distance, per_side = (away.abs(), buckets // 2) if sides == "both" else (away.clamp(min=0), buckets)
    exact = per_side // 2
    far = exact + (distance.double().clamp(min=1) / exact).log() / math.log(max_distance / exact) * (per_side - exact)
    wanted = torch.where(distance < exact, distance, (far + 1e-9).floor().long().clamp(max=per_side - 1))
    wanted += per_side * ((away < 0) & (sides == "both"))
    assert ours.tolist() == wanted.tolist()
    border = (distance >= exact) & ((far - far.round()).abs() < 1e-4)
    assert border.double().mean() < 0.05
    assert torch.equal(ours[~border], theirs[~border])
    assert ((ours - theirs)[border].abs() <= 1).all()


def test_t5_goldens() -> None:
    past = {0: 0, 15: 15, 18: 16, 19: 17, 21: 18, 32: 21, 64: 26, 112: 30, 113: 31, 10**9: 31, -5: 0}
    both = {0: 0, 11: 8, 12: 9, 64: 14, -1: 17, -11: 24, -12: 25, -64: 30, 10**9: 15, -(10**9): 31}
    assert T5(1, sides="past").buckets_of(torch.tensor(list(past))).tolist() == list(past.values())
    assert T5(1).buckets_of(torch.tensor(list(both))).tolist() == list(both.values())


def test_t5_bias_reads_its_table_and_interpolates() -> None:
    t5 = randomised(T5(HEADS))
    q, k = torch.tensor([[3, 20], [0, 0]]), torch.tensor([[0, 3, 40], [5, 1, 0]])
    bias = t5.bias(q, k)
    for b, i, j in torch.cartesian_prod(*map(torch.arange, (2, 2, 3))).tolist():
        bucket = T5Attention._relative_position_bucket(k[b, j] - q[b, i])
        assert_close(bias[b, :, i, j], t5.table[bucket].detach(), check_dtype=False)
    halfway = t5.bias(torch.tensor([[2.25]]), torch.zeros(1, 1))[0, :, 0, 0]
    assert_close(halfway, 0.75 * t5.table[2] + 0.25 * t5.table[3])


POSITIONS_Q = torch.tensor([[0, 1, 5, 90], [3, 3, 2, 700]])
POSITIONS_K = torch.tensor([[0, 1, 5, 90, 4], [0, 2, 2, 900, 3]])


def assert_twin(bias: Tensor, twin) -> None:
    batch, heads, length_q, length_k = bias.shape
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (batch, heads, length_q, length_k))).tolist():
        expected = twin(h, POSITIONS_Q[b, i].item(), POSITIONS_K[b, j].item())
        assert bias[b, h, i, j].item() == pytest.approx(expected, rel=1e-4, abs=1e-5), (b, h, i, j)


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple_twin(kind: str) -> None:
    kerple = randomised(KERPLE(HEADS, kind=kind))
    a, p = (value.tolist() for value in kerple.a_and_p())

    def twin(h: int, m: int, n: int) -> float:
        away = abs(m - n)
        return -p[h] * math.log(1 + a[h] * away) if kind == "log" else -a[h] * away ** p[h]

    assert_twin(kerple.bias(POSITIONS_Q, POSITIONS_K), twin)


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple_stays_in_its_domain(kind: str) -> None:
    kerple = KERPLE(HEADS, kind=kind)
    for extreme in (-40, 0, 40):
        torch.nn.init.constant_(kerple.raw_p, extreme)
        torch.nn.init.constant_(kerple.log_a, extreme)
        a, p = kerple.a_and_p()
        assert (a > 0).all()
        assert (p >= 0).all()
        assert kind == "log" or (p <= 2).all()


def test_fire_twin() -> None:
    fire = randomised(FIRE(HEADS, train_length=64, d_hidden=5))
    c, threshold = fire.log_c.exp().item(), fire.log_threshold.exp().item()
    assert 1 < threshold < 90, "both sides of the maximum must be met"
    inner, outer = fire.inner.double(), fire.outer.double()

    def twin(h: int, m: int, n: int) -> float:
        share = math.log(1 + c * abs(m - n)) / math.log(1 + c * max(m, threshold))
        activations = [max(0.0, (w * share + b).item()) for w, b in zip(inner.weight[:, 0], inner.bias, strict=True)]
        return sum((w * x).item() for w, x in zip(outer.weight[h], activations, strict=True)) + outer.bias[h].item()

    assert_twin(fire.bias(POSITIONS_Q, POSITIONS_K), twin)


def test_fire_starts_at_the_published_point() -> None:
    fire = FIRE(HEADS, train_length=2048)
    assert fire.log_c.exp().item() == pytest.approx(0.1)
    assert fire.log_threshold.exp().item() == pytest.approx(512)


@pytest.mark.parametrize("heads", [1, 4, 12])
def test_sandwich_twin(heads: int) -> None:
    def twin(h: int, m: int, n: int) -> float:
        total = sum(math.cos((m - n) / 10_000 ** (2 * i / 128)) for i in range(64))
        return (total - 64) / ((h + 1) * 8 / heads)

    assert_twin(Sandwich(heads).bias(POSITIONS_Q, POSITIONS_K), twin)


# --- scores and embeddings


@pytest.mark.parametrize("counts", [4, 64])
def test_cope_is_x_transformers(counts: int) -> None:
    ours, theirs = randomised(CoPE(DIM, counts=counts)), x_transformers.CoPE(DIM, HEADS, counts)
    theirs.pos_emb.data.copy_(ours.table)
    q, k = queries_and_keys(12, batch=2)
    logits, visible = q @ k.mT / DIM**0.5, torch.ones(12, 12, dtype=torch.bool).tril()
    masked = logits.masked_fill(~visible, -torch.finfo(logits.dtype).max)
    expected = (logits + theirs(q, masked)).masked_fill(~visible, 0)
    positions = torch.arange(12)[None]
    for given in (logits, masked):  # masked before or after: the count must be the same
        scored = ours.score(given, q, positions, positions, visible)
        assert_close(scored.masked_fill(~visible, 0), expected, **CLOSE)


def test_shaw_twin() -> None:
    shaw = Shaw(DIM, max_distance=4)
    q, _ = queries_and_keys(4, batch=2)
    logits = torch.randn(2, HEADS, 4, 5)
    scored = shaw.score(logits, q, POSITIONS_Q, POSITIONS_K, torch.ones(4, 5, dtype=torch.bool))
    table = shaw.table.double()
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (2, HEADS, 4, 5))).tolist():
        ahead = (POSITIONS_K[b, j] - POSITIONS_Q[b, i]).item()
        vector = table[max(-4, min(4, ahead)) + 4]
        expected = logits[b, h, i, j].item() + sum((q[b, h, i].double() * vector).tolist()) / math.sqrt(DIM)
        assert scored[b, h, i, j].item() == pytest.approx(expected, abs=1e-5)


def test_sinusoidal_twin() -> None:
    positions = torch.tensor([[0.0, 0.5, 3.0], [123_456.0, 7.25, 1.0]])
    waves = Sinusoidal(DIM).embed(torch.zeros(2, 3, DIM), positions)
    for b, n, channel in torch.cartesian_prod(*map(torch.arange, (2, 3, DIM))).tolist():
        angle = positions[b, n].item() / 10_000 ** (2 * (channel // 2) / DIM)
        expected = math.cos(angle) if channel % 2 else math.sin(angle)
        assert waves[b, n, channel].item() == pytest.approx(expected, abs=1e-6)
