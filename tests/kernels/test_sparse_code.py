"""The kernels of sparse codes against their definitions in double precision, and against torch's own top-k."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whence.errors import UserError
from whence.kernels.sparse_code import ByFeature, decode, gathered, naive, scores, top_k


def codes(n: int, size: int, width: int, k: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, weight, bias and indices."""
    draw = torch.Generator().manual_seed(seed)
    x, weight, bias = (torch.randn(shape, generator=draw) for shape in ((n, width), (size, width), (size,)))
    return x, weight, bias, torch.rand(n, size, generator=draw).topk(k).indices


def run(function: Callable[..., Tensor], tensors: Sequence[Tensor], slopes: Tensor) -> list[Tensor]:
    """The result, and the gradients of all tensors when `slopes` comes back for it."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = function(*leaves)
    return [result.detach(), *torch.autograd.grad(result, leaves, slopes)]


def compare(ours: Callable[..., Tensor], true: Callable[..., Tensor], *tensors: Tensor) -> None:
    """Every number is a sum of products: its error is measured by the sum of their sizes, which does not cancel."""
    slopes = torch.randn(ours(*tensors).shape, generator=torch.Generator().manual_seed(1))
    doubles = [tensor.double() for tensor in tensors]
    actual, wanted = run(ours, tensors, slopes), run(true, doubles, slopes.double())
    scales = run(true, [tensor.abs() for tensor in doubles], slopes.double().abs())
    for a, b, scale in zip(actual, wanted, scales, strict=True):
        assert a.dtype == torch.float32
        assert ((a - b).abs() <= 1e-6 * scale).all()


shapes = st.tuples(st.integers(1, 40), st.integers(1, 60), st.sampled_from([1, 5, 16, 17, 48]), st.data())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(drawn=shapes, all_of_them=st.booleans(), zeros=st.booleans())
def test_products_equal_their_definitions(
    drawn: tuple[int, int, int, st.DataObject], all_of_them: bool, zeros: bool
) -> None:
    n, size, width, data = drawn
    k = size if all_of_them else data.draw(st.integers(1, min(size, 9)))
    x, weight, bias, indices = codes(n, size, width, k, seed=n)
    lists = ByFeature(indices, size)
    compare(
        lambda *given: gathered(*given, indices, by_feature=lists),
        lambda *given: naive.gathered(*given, indices),
        x,
        weight,
        bias,
    )
    values = torch.randn(n, k, generator=torch.Generator().manual_seed(k))
    values = values.relu() if zeros else values
    compare(
        lambda values, weight: decode(values, indices, weight, by_feature=lists),
        lambda values, weight: naive.decode(values, indices, weight),
        values,
        weight,
    )


def test_strided_inputs_and_gradients() -> None:
    x, weight, bias, indices = codes(12, 30, 20, 4)
    turned = indices.T.contiguous().T
    compare(
        lambda x, weight, bias: gathered(x.T, weight.T, bias, turned).T,
        lambda x, weight, bias: naive.gathered(x.T, weight.T, bias, indices).T,
        x.T.contiguous(),
        weight.T.contiguous(),
        bias,
    )


def test_known_scores_are_read_and_have_the_same_gradients() -> None:
    x, weight, bias, indices = codes(20, 50, 32, 6)
    dense = scores(x, weight.requires_grad_(), bias)
    assert not dense.requires_grad
    expected = x.double() @ weight.detach().double().T + bias.double()
    torch.testing.assert_close(dense, expected.float())
    torch.testing.assert_close(scores(x.double(), weight.double(), bias.double()), expected)
    assert torch.equal(gathered(x, weight, bias, indices, dense=dense), dense.gather(1, indices))
    compare(
        lambda *given: gathered(*given, indices, dense=dense),
        lambda *given: naive.gathered(*given, indices),
        x,
        weight,
        bias,
    )


def test_gradients_that_nobody_needs_are_not_made() -> None:
    x, weight, bias, indices = codes(8, 20, 16, 3)
    lists = ByFeature(indices, len(weight))
    gathered(x.requires_grad_(), weight, bias, indices, by_feature=lists).sum().backward()
    assert "lists" not in vars(lists)  # nothing was sorted
    assert weight.grad is None
    values = torch.rand(8, 3)
    decode(values, indices, weight.requires_grad_(), by_feature=lists).sum().backward()
    assert values.grad is None
    assert weight.grad is not None


def test_definitions_have_right_gradients() -> None:
    x, weight, bias, indices = (t.double() if t.is_floating_point() else t for t in codes(4, 7, 5, 3))
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    assert torch.autograd.gradcheck(lambda *given: gathered(*given, indices), leaves)
    values = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values, weight: decode(values, indices, weight), (values, weight))


def test_every_run_gives_the_same_bits_on_any_number_of_threads() -> None:
    x, weight, bias, _ = codes(100, 300, 48, 1)
    dense = x @ weight.T + bias  # once: the bits of torch's product may depend on the number of threads

    def with_threads(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (x, weight, bias)]
        indices = top_k(dense, 10)
        decoded = decode(gathered(*leaves, indices).relu(), indices, leaves[1])
        decoded.square().sum().backward()
        return [indices, decoded.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    before = torch.get_num_threads()
    try:
        first, *others = [with_threads(threads) for threads in (1, 1, 2, 8)]
    finally:
        torch.set_num_threads(before)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_lists_by_feature_hold_every_entry_in_the_order_of_samples() -> None:
    *_, indices = codes(30, 12, 4, 5)
    starts, samples, places = ByFeature(indices, 12).lists
    for feature in range(12):
        mine = places[starts[feature] : starts[feature + 1]]
        assert torch.equal(mine, (indices.flatten() == feature).nonzero().flatten())
        assert torch.equal(samples[starts[feature] : starts[feature + 1]], mine // 5)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 20),
    size=st.integers(1, 700),
    data=st.data(),
    levels=st.sampled_from([0, 1, 2, 5]),
    lows=st.booleans(),
    order=st.sampled_from(["random", "rising", "falling"]),
)
def test_top_k_is_that_of_torch(n: int, size: int, data: st.DataObject, levels: int, lows: bool, order: str) -> None:
    """With `levels` many scores are equal; then only the values can be compared."""
    k = data.draw(st.sampled_from([1, 2, 8, 32, size])) if size >= 32 else data.draw(st.integers(1, size))
    draw = torch.Generator().manual_seed(size)
    scores = torch.randn(n, size, generator=draw)
    if levels:
        scores = (levels * scores).round()
    if lows:
        scores[torch.rand(n, size, generator=draw) < 0.9] = -torch.inf
    if order != "random":
        scores = scores.sort(descending=order == "falling").values
    actual, wanted = top_k(scores, k), scores.topk(k)
    assert torch.equal(scores.gather(1, actual).sort().values, wanted.values.sort().values)
    chosen = actual.sort().values
    assert (chosen.diff() > 0).all()
    if not (levels or lows):
        assert torch.equal(chosen, wanted.indices.sort().values)


@pytest.mark.parametrize("size", [5, 100, 1000])
def test_what_is_not_a_number_counts_as_infinite(size: int) -> None:
    scores = torch.randn(3, size)
    scores[0, ::3] = torch.nan
    scores[1, 2] = torch.nan
    scores[2] = torch.nan
    actual = top_k(scores, 3)
    assert (actual.sort().values.diff() > 0).all()
    assert 2 in actual[1]
    assert torch.equal(top_k(scores, 1)[1], torch.tensor([2]))
    count = min(3, len(range(0, size, 3)))
    assert scores[0, actual[0]].isnan().sum() == count


def test_top_k_of_strided_scores_of_other_precision_and_of_none() -> None:
    scores = torch.randn(40, 30)
    wanted = scores.T.topk(4).indices.sort().values
    assert torch.equal(top_k(scores.T, 4).sort().values, wanted)
    assert torch.equal(top_k(scores.T.double(), 4).sort().values, wanted)
    assert top_k(scores[:0], 4).shape == (0, 4)


def test_an_empty_batch() -> None:
    x, weight, bias, indices = codes(0, 9, 8, 2)
    weight.requires_grad_()
    decoded = decode(gathered(x, weight, bias, indices), indices, weight)
    decoded.sum().backward()
    assert decoded.shape == (0, 8)
    assert weight.grad is not None
    assert not weight.grad.any()


def test_traced_they_are_their_definitions() -> None:
    x, weight, bias, indices = codes(6, 10, 8, 3)

    def through(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return decode(gathered(x, weight, bias, indices), indices, weight)

    compiled = torch.compile(through, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, weight, bias), through(x, weight, bias))


def test_gradients_of_gradients_are_refused() -> None:
    x, weight, bias, indices = codes(6, 10, 8, 3)
    values = gathered(x, weight.requires_grad_(), bias, indices)
    with pytest.raises(UserError, match="no gradients of gradients"):
        torch.autograd.grad(values.sum(), weight, create_graph=True)


def test_wrong_arguments_are_refused() -> None:
    x, weight, bias, indices = codes(6, 10, 8, 3)
    for wrong in (0, 11):
        with pytest.raises(ValueError, match="k from 1 to size"):
            top_k(torch.zeros(6, 10), wrong)
    with pytest.raises(ValueError, match="indices go from"):
        gathered(x, weight, bias, indices + 8)
    with pytest.raises(ValueError, match="indices go from"):
        decode(torch.zeros(6, 3), indices - 1, weight)
    with pytest.raises(ValueError, match="int64"):
        decode(torch.zeros(6, 3), indices.int(), weight)
    with pytest.raises(ValueError, match="x has shape"):
        gathered(x[:5], weight, bias, indices)
    with pytest.raises(ValueError, match="dense has shape"):
        gathered(x, weight, bias, indices, dense=torch.zeros(6, 9))
    with pytest.raises(ValueError, match="values has shape"):
        decode(torch.zeros(6, 2), indices, weight)
    with pytest.raises(ValueError, match="other indices"):
        decode(torch.zeros(6, 3), indices, weight, by_feature=ByFeature(indices.clone(), 10))
