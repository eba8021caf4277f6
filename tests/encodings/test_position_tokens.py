"""What goes in as an LP comes out as that LP, wherever it stands."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whence.encodings.position_tokens import Placement, PositionTokens

D = 8


def tokens(rows: int, length: int) -> Tensor:
    return torch.randn(rows, length, D, generator=torch.Generator().manual_seed(length))


@given(
    placement=st.sampled_from(get_args(Placement)),
    count=st.integers(1, 40),
    length=st.integers(1, 50),
    groups=st.integers(1, 9),
    draw=st.integers(0, 5),
    conditional=st.booleans(),
    padded=st.booleans(),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_out_comes_what_went_in(
    placement: Any, count: int, length: int, groups: int, draw: int, conditional: bool, padded: bool, data: Any
) -> None:
    made = PositionTokens(D, count=count, placement=placement, groups=groups, draw=draw, conditional=conditional)
    x, positions = tokens(3, length), torch.arange(length)[None]
    valid = None
    if padded:
        sizes = data.draw(st.lists(st.integers(1, length), min_size=3, max_size=3))
        valid = torch.arange(length) < torch.tensor(sizes)[:, None]
        valid = valid.flip(1) if data.draw(st.booleans()) else valid
    merged, where, interleaving = made.interleave(x, positions, valid)
    assert merged.shape == (3, length + count, D)
    assert torch.equal(interleaving.tokens(merged), x)
    if not conditional and placement != "adaptive":
        assert torch.equal(made.extract(merged, interleaving), made.table.expand(3, -1, -1))
    assert torch.equal(interleaving.merge(interleaving.tokens(merged), interleaving.inserted(merged)), merged)
    assert where.shape == (len(interleaving.order), length + count)
    assert torch.equal(interleaving.tokens(where), positions.double().expand(len(where), -1))
    if valid is not None:  # no LP stands beyond the padding, and each is where valid tokens are
        present = interleaving.merge(valid, torch.ones(3, count, dtype=torch.bool))
        for row, flags in zip(valid, present, strict=True):
            inside = flags.nonzero().flatten()
            assert int(inside.max() - inside.min()) + 1 == int(row.sum()) + count
        places = interleaving.inserted(where)
        for row, at in zip(valid, places, strict=True):
            index = row.nonzero().flatten()
            assert at.min() >= index.min()
            assert at.max() <= index.max()


@pytest.mark.parametrize(
    ("placement", "count", "length", "expected"),
    [
        ("equidistant", 2, 4, "tLttLt"),
        ("equidistant", 4, 4, "tLtLtLtL"),
        ("middle", 2, 4, "ttLLtt"),
        ("n_group", 4, 4, "tLLttLLt"),
        ("equidistant", 1, 3, "ttLt"),
    ],
)
def test_where_they_stand(placement: Any, count: int, length: int, expected: str) -> None:
    interleaving = PositionTokens(D, count=count, placement=placement).interleaving(length)
    assert "".join("t" if place < length else "L" for place in interleaving.order[0].tolist()) == expected


def test_as_many_as_tokens_each_has_the_place_of_its_token() -> None:
    made = PositionTokens(D, count=6)
    grid = torch.rand(1, 6, 2, dtype=torch.float64)
    assert torch.allclose(made.interleaving(6).between(grid), grid)


def test_a_place_between_two_tokens_is_between_them() -> None:
    made = PositionTokens(D, count=2)
    assert made.interleaving(4).between(torch.tensor([[0.0, 10.0, 20.0, 40.0]]))[0].tolist() == [5.0, 30.0]


def test_hierarchies_have_a_coarse_and_a_fine_set() -> None:
    made = PositionTokens(D, count=20, placement="hierarchical")
    assert torch.allclose(made.reach(1), torch.tensor([5.0] * 4 + [1.25] * 16))
    assert torch.allclose(made.reach(2), made.reach(1).sqrt())
    assert torch.allclose(made.shares()[:4], (torch.arange(4) + 0.5).double() / 4)
    assert torch.allclose(made.shares()[4:], (torch.arange(16) + 0.5).double() / 16)


def test_learned_places_move() -> None:
    made = PositionTokens(D, count=4, placement="adaptive")
    interleaving = made.interleaving(8)
    interleaving.between(torch.arange(8.0)[None] ** 2).sum().backward()
    assert made.place is not None
    assert made.place.grad is not None
    assert (made.place.grad > 0).all(), "further along is a larger square"


def test_conditional_ones_know_what_stands_before_them_only() -> None:
    made = PositionTokens(D, count=3, conditional=True)
    x = tokens(2, 9)
    merged, _, interleaving = made.interleave(x, torch.arange(9)[None])
    assert made.content is not None
    for at, group in enumerate((x[:, :2], x[:, 2:5], x[:, 5:8])):
        expected = made.table[at] + group.mean(1) @ made.content
        torch.testing.assert_close(made.extract(merged, interleaving)[:, at], expected)


def test_pruned_ones_are_gone_and_the_others_stay_where_they_were() -> None:
    made = PositionTokens(D, count=6)
    whole = made.interleaving(12)
    made.selected = torch.tensor([1, 4])
    merged, _, interleaving = made.interleave(tokens(1, 12), torch.arange(12)[None])
    assert merged.shape[1] == 14
    assert torch.equal(made.extract(merged, interleaving)[0], made.table[[1, 4]])
    assert torch.equal(interleaving.at, whole.at[:, [1, 4]])
