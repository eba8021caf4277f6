"""Transforms of positions: properties, and composition with every encoding that reads positions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.encodings.attend import CASES, MAX_LENGTH, STRUCTURE, TRAIN_LENGTH, attention, build, content, line
from whence.encodings import ENCODINGS
from whence.encodings.base import Encoding
from whence.encodings.transforms import TRANSFORMS, Interpolated, Randomized, Shifted, Transform
from whence.registry import Choice

quick = settings(max_examples=60, deadline=None)
rows_of_positions = st.integers(1, 20).flatmap(
    lambda length: st.lists(
        st.lists(st.integers(-50, 50), min_size=length, max_size=length), min_size=1, max_size=3
    ).map(torch.tensor)
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


TRANSFORM_CASES = [TRANSFORMS.choose(f"{t.name}:{options}") for t in TRANSFORMS for options in ("", *t.examples)]


@pytest.fixture(params=TRANSFORM_CASES, ids=str)
def transform(request: pytest.FixtureRequest) -> Transform:
    return request.param.build(**STRUCTURE)


def test_declares_and_round_trips(transform: Transform, request: pytest.FixtureRequest) -> None:
    choice = request.node.callspec.params["transform"]
    assert transform.reference
    assert transform.summary().endswith(".")
    assert TRANSFORMS.choose(str(choice)) == choice


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.long, torch.int32, torch.uint8, torch.float32, torch.bfloat16])
def test_keeps_shape_order_and_ties(transform: Transform, training: bool, dtype: torch.dtype) -> None:
    positions = torch.tensor([[3, 0, 9, 9, 200, 40], [5, 4, 3, 2, 1, 0]]).to(dtype)
    edited = transform(positions, training=training, generator=seeded())
    assert edited.shape == positions.shape
    for before, after in zip(positions.double(), edited, strict=True):
        assert torch.equal(before[:, None] < before, after[:, None] < after)
        assert torch.equal(before[:, None] == before, after[:, None] == after)


def test_deterministic_given_the_generator_and_leaves_its_input(transform: Transform) -> None:
    positions = torch.arange(40).repeat(3, 1)
    first, second = (transform(positions, training=True, generator=seeded(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(positions, torch.arange(40).repeat(3, 1))
    torch.manual_seed(0)
    state = torch.get_rng_state()
    transform(positions, training=True, generator=seeded(1))
    assert torch.equal(state, torch.get_rng_state()), "with a generator, the global stream is left alone"


@pytest.mark.parametrize("choice", CASES, ids=str)
def test_composes_with_every_encoding_that_admits_it(choice: Choice[Encoding]) -> None:
    encoding = build(choice)
    fitting = {"randomized": f"randomized:span={TRAIN_LENGTH}", "shifted": f"shifted:reach={TRAIN_LENGTH - 8}"}
    if encoding.axes > 1:
        fitting["interpolated"] = "interpolated:factor=2,fit=false"
    for case in TRANSFORM_CASES:
        transform = TRANSFORMS.choose(fitting.get(case.name, case)).build(train_length=TRAIN_LENGTH)
        positions = line(encoding, 0, 0)
        edited = transform(positions, training=True, generator=seeded(3))
        weights = attention(encoding, edited, content())
        assert weights.isfinite().all()
        if not encoding.admits_transforms:
            assert torch.equal(weights, attention(encoding, positions, content()))
        elif case.name == "randomized":
            assert (weights - attention(encoding, positions, content())).abs().max() > 1e-4


def test_a_span_beyond_the_table_is_an_error_not_a_clamp() -> None:
    learned = build(ENCODINGS.choose("learned"))
    positions = Randomized(span=2048)(line(learned, 0, 0), training=True, generator=seeded())
    assert positions.max() >= MAX_LENGTH
    with pytest.raises(ValueError, match="outside the learned table of 64 rows"):
        attention(learned, positions, content())


# --- randomized


@quick
@given(rows_of_positions, st.integers(20, 40), st.booleans(), st.integers(0, 2**31))
def test_randomized_properties(positions: torch.Tensor, span: int, training: bool, seed: int) -> None:
    drawn = Randomized(span=span)(positions, training=training, generator=seeded(seed))
    assert drawn.dtype == torch.long
    assert drawn.min() >= 0
    assert drawn.max() < span
    for before, after in zip(positions, drawn, strict=True):
        assert torch.equal(before[:, None] < before, after[:, None] < after)
        assert torch.equal(before[:, None] == before, after[:, None] == after)


def test_randomized_fills_the_span_when_it_must() -> None:
    full = Randomized(span=8)(torch.arange(8).flip(0)[None], training=True)
    assert full.tolist() == [[7, 6, 5, 4, 3, 2, 1, 0]]


def test_randomized_is_uniform_over_subsets() -> None:
    """All C(5, 2) = 10 pairs equally often; ties must not bias the draw towards one end."""
    positions = torch.tensor([[4, 9, 9, 4]]).expand(20_000, -1)
    drawn = Randomized(span=5)(positions, training=True, generator=seeded())
    counts = torch.bincount(drawn[:, 0] * 5 + drawn[:, 1])
    counts = counts[counts > 0]
    assert len(counts) == 10
    assert (counts - 2000).abs().max() < 5 * 2000**0.5
    other = Randomized(span=5)(torch.tensor([[4, 9, 9, 4], [1, 2, 3, 4]]).repeat(5000, 1), training=True)[::2]
    assert other.double().mean().item() == pytest.approx(2, abs=0.1), "whatever the other rows hold"


def test_randomized_draws_per_row_and_shares_a_shared_row() -> None:
    rows = Randomized(span=2048)(torch.arange(30).repeat(4, 1), training=True, generator=seeded())
    assert len({tuple(row.tolist()) for row in rows}) == 4
    shared = Randomized(span=2048)(torch.arange(30)[None], training=True, generator=seeded())
    assert shared.shape == (1, 30)


def test_randomized_serves_queries_and_keys_with_one_draw() -> None:
    keys = torch.arange(30)[None]
    joint = Randomized()(torch.cat([keys, keys[:, -5:]], dim=1), training=True, generator=seeded())
    assert torch.equal(joint[:, 30:], joint[:, 25:30])


def test_randomized_at_test_too() -> None:
    positions = torch.arange(30)[None]
    in_training, at_test = (Randomized()(positions, training=t, generator=seeded()) for t in (True, False))
    assert torch.equal(in_training, at_test)
    assert not torch.equal(at_test, positions)


def test_randomized_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="9 distinct positions do not fit span=8"):
        Randomized(span=8)(torch.arange(9)[None], training=True)
    assert Randomized(span=8)(torch.arange(9)[None] // 2, training=True).unique().numel() == 5
    with pytest.raises(ValueError, match=r"span=8 .*max_length=9"):
        Randomized(9, span=8)


def test_randomized_grid_keeps_rows_and_columns() -> None:
    grid = torch.cartesian_prod(torch.arange(4), torch.arange(6))[None]
    drawn = Randomized(span=100)(grid, training=True, generator=seeded())
    table = drawn.view(4, 6, 2)
    assert (table[..., 0] == table[:, :1, 0]).all()
    assert (table[..., 1] == table[:1, :, 1]).all()
    assert not torch.equal(table[:, 0, 0], table[0, :4, 1])


# --- shifted


@quick
@given(rows_of_positions, st.integers(1, 600), st.integers(0, 2**31))
def test_shifted_properties(positions: torch.Tensor, reach: int, seed: int) -> None:
    shifted = Shifted(reach=reach)
    offsets = shifted(positions, training=True, generator=seeded(seed)) - positions
    assert (offsets == offsets[:, :1]).all()
    assert offsets.min() >= 0
    assert offsets.max() <= reach
    assert torch.equal(shifted(positions, training=False), positions)


def test_shifted_reaches_both_ends_evenly() -> None:
    offsets = Shifted(reach=3)(torch.zeros(8000, 1, dtype=torch.long), training=True, generator=seeded()).flatten()
    counts = torch.bincount(offsets)
    assert len(counts) == 4
    assert (counts - 2000).abs().max() < 5 * 2000**0.5


def test_shifted_moves_each_axis_by_itself() -> None:
    moved = Shifted()(torch.zeros(1, 5, 2, dtype=torch.long), training=True, generator=seeded())
    assert (moved == moved[:, :1]).all()
    assert moved[0, 0, 0] != moved[0, 0, 1]


# --- interpolated


@quick
@given(st.integers(2, 200), st.integers(1, 400), st.booleans())
def test_interpolated_fits_long_rows_and_leaves_short_ones(trained: int, length: int, training: bool) -> None:
    positions = torch.arange(length)[None]
    squeezed = Interpolated(trained)(positions, training=training)
    assert squeezed.max() <= trained - 1
    if length <= trained:
        assert torch.equal(squeezed, positions.double())
    else:
        assert squeezed.max().item() == pytest.approx(trained - 1)
        assert_close(squeezed.diff(), torch.full((1, length - 1), (trained - 1) / (length - 1), dtype=torch.float64))


def test_interpolated_judges_each_row_by_itself() -> None:
    squeezed = Interpolated(8)(torch.stack([torch.arange(6), torch.arange(6) * 14]), training=False)
    assert squeezed.tolist() == [[0, 1, 2, 3, 4, 5], pytest.approx([0, 1.4, 2.8, 4.2, 5.6, 7])]


def test_interpolated_never_overruns_by_rounding() -> None:
    far = 13 + torch.rand(20_000, 1, generator=seeded(), dtype=torch.float64) * 1000
    squeezed = Interpolated(14)(far, training=False)
    assert squeezed.max() <= 13
    assert squeezed.min().item() == pytest.approx(13)


def test_interpolated_by_a_factor_is_linear_rope_scaling() -> None:
    """Two roads to one place: dividing positions, or dividing frequencies."""
    positions = torch.arange(40)[None]
    plain, scaled = (build(ENCODINGS.choose(text)) for text in ("rope", "rope:scaling=linear,factor=4"))
    divided = Interpolated(TRAIN_LENGTH, factor=4, fit=False)(positions, training=False)
    x = content(2, 40)
    assert_close(attention(plain, divided, x), attention(scaled, positions, x))


def test_interpolated_refuses_to_fit_a_grid() -> None:
    grid = torch.zeros(1, 9, 2)
    with pytest.raises(ValueError, match="fit=false"):
        Interpolated(8)(grid, training=False)
    assert Interpolated(8, factor=2, fit=False)(grid, training=False).shape == grid.shape
