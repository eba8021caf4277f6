"""The convolution against its definition, and against torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whence.kernels import causal_conv
from whence.kernels.causal_conv import naive, operator


def inputs(batch: int, length: int, channels: int, taps: int, bias: bool, seed: int = 0) -> list[Tensor | None]:
    torch.manual_seed(seed)
    offset = torch.randn(channels) if bias else None
    return [torch.randn(batch, length, channels), torch.randn(channels, taps), offset]


def relative(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm().clamp(min=1e-30)).item()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 150),
    channels=st.sampled_from([1, 5, 16, 17, 40]),
    taps=st.integers(1, 6),
    bias=st.booleans(),
    reverse=st.booleans(),
    strided=st.booleans(),
)
def test_equals_its_definition(
    batch: int, length: int, channels: int, taps: int, bias: bool, reverse: bool, strided: bool
) -> None:
    given = inputs(batch, length, channels, taps, bias, seed=length)
    if strided and given[0] is not None:
        given[0] = given[0].transpose(1, 2).contiguous().transpose(1, 2)
    ours = [t if t is None else t.detach().requires_grad_() for t in given]
    true = [t if t is None else t.detach().double().requires_grad_() for t in given]
    y, wanted = causal_conv(*ours, reverse=reverse), naive.causal_conv(*true, reverse=reverse)  # type: ignore[arg-type]
    assert relative(y, wanted) < 1e-6
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (wanted * weight).sum().backward()
    for mine, other in zip(ours, true, strict=True):
        if mine is not None and other is not None:
            assert relative(mine.grad, other.grad) < 5e-6  # type: ignore[arg-type]


def test_equals_a_grouped_convolution_of_torch() -> None:
    x, weight, bias = (t for t in inputs(2, 50, 20, 4, True) if t is not None)
    wanted = F.conv1d(x.double().mT, weight.double()[:, None], bias.double(), padding=3, groups=20)[..., :50]
    torch.testing.assert_close(causal_conv(x, weight, bias), F.silu(wanted).mT.float())


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_in_double_precision(reverse: bool) -> None:
    given = [t.double().requires_grad_() for t in inputs(2, 6, 5, 4, True) if t is not None]
    assert torch.autograd.gradcheck(lambda *tensors: causal_conv(*tensors, reverse=reverse), given)


def test_torch_knows_the_operator() -> None:
    given = [t.requires_grad_() for t in inputs(2, 6, 5, 4, True) if t is not None]
    torch.library.opcheck(operator, (*given, False))
    compiled = torch.compile(causal_conv, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), causal_conv(*given))


def test_the_number_of_threads_changes_no_bit() -> None:
    def run(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        given = [t.requires_grad_() for t in inputs(3, 70, 48, 4, True) if t is not None]
        y = causal_conv(*given)
        y.square().sum().backward()
        return [y.detach(), *(t.grad for t in given if t.grad is not None)]

    before = torch.get_num_threads()
    try:
        one, *others = [run(threads) for threads in (1, 2, 8)]
    finally:
        torch.set_num_threads(before)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_extreme_inputs_stay_finite() -> None:
    x = torch.tensor([-1e30, -200.0, -88.0, 0.0, 88.0, 200.0, 1e30]).view(1, -1, 1).requires_grad_()
    y = causal_conv(x, torch.ones(1, 1))
    y.sum().backward()
    expected = F.silu(x.double()).float()
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-8)  # exp stops at 2¹²⁷, and −1e30 over that is −6e-9
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("x", "weight", "bias", "message"),
    [
        ((2, 3), (3, 4), None, "x must be"),
        ((2, 3, 4), (5, 4), None, "weight"),
        ((2, 0, 4), (4, 4), None, "none of them empty"),
        ((2, 3, 4), (4, 2), (5,), "bias has shape"),
    ],
)
def test_wrong_shapes_are_refused(
    x: tuple[int, ...], weight: tuple[int, ...], bias: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        causal_conv(torch.zeros(x), torch.zeros(weight), None if bias is None else torch.zeros(bias))
