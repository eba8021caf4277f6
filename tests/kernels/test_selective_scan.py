"""The CPU kernel of the selective scan, held to its definition in float64 and to what plain torch makes of it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from mambapy.pscan import pscan
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from whence.errors import UserError
from whence.kernels import memory, selective_scan
from whence.kernels.selective_scan import naive, other_devices
from whence.kernels.selective_scan.numba_cpu import CHUNK, pack, unpack

Scan = Callable[..., Any]
EPS = torch.finfo(torch.float32).eps
# Gradients through many decays are too small for float32 (e⁻¹²⁸⁰ after one step of Δ·A = 20·64). That they come out
# as 0, or as 2⁻¹²⁵ where the kernel stops, is no error: sizes below this count as this.
TINY = 1e-25
DELTAS = (1e-6, 20.0)
OPTIONAL = ("D", "z", "initial_state")


@dataclass(repr=False)
class Case:
    """The arguments of one scan."""

    tensors: dict[str, Tensor]
    valid: Tensor | None = None
    reverse: bool = False
    return_state: bool = True
    seed: int = 0
    weights: list[Tensor] = field(default_factory=list)  # of y and the state in the loss whose gradients are compared

    def __repr__(self) -> str:
        given = ", ".join(f"{name} {tuple(t.shape)} strides {t.stride()}" for name, t in self.tensors.items())
        return f"<seed {self.seed}: {given}; valid={self.valid is not None} {self.reverse=} {self.return_state=}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # what Hypothesis prints
        printer.text(repr(self))

    def __call__(self, scan: Scan, tensors: dict[str, Tensor] | None = None) -> Any:
        given = self.tensors if tensors is None else tensors
        return scan(**given, valid=self.valid, reverse=self.reverse, return_state=self.return_state)

    def results(self, scan: Scan, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """y, state, and the gradient of every tensor under its name with a d in front."""
        tensors = {name: leaf(tensor if dtype is None else tensor.to(dtype)) for name, tensor in self.tensors.items()}
        actual = self(scan, tensors)
        outputs = list(actual) if self.return_state else [actual]
        weights = [w.to(out.dtype) for w, out in zip(self.weights, outputs, strict=False)]
        wanted = list(tensors.values())
        gradients = torch.autograd.grad(outputs, wanted, weights, allow_unused=True)
        named = {f"d{name}": g for name, g in zip(tensors, gradients, strict=True) if g is not None}
        return {name: out.detach() for name, out in zip(("y", "state"), outputs, strict=False)} | named


def leaf(tensor: Tensor) -> Tensor:
    """The same numbers with the same strides, as an input of its own."""
    return tensor.detach().requires_grad_()


def draw(
    seed: int = 0,
    batch: int = 2,
    length: int = 50,
    channels: int = 17,
    N: int = 4,
    *,
    delta: float | None = None,
    A: float | None = None,
    without: tuple[str, ...] = (),
    valid: bool = False,
    reverse: bool = False,
    return_state: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Random arguments; delta log-uniform from 1e-6 to 20 and A from -64 to -1/16, unless one number is given."""
    chance = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=chance).to(dtype)

    def log_uniform(low: float, high: float, *shape: int) -> Tensor:
        return (torch.rand(*shape, generator=chance) * math.log(high / low) + math.log(low)).exp().to(dtype)

    steps = log_uniform(*DELTAS, batch, length, channels)
    rates = log_uniform(1 / 16, 64.0, channels, N)
    tensors = {
        "u": normal(batch, length, channels),
        "delta": steps if delta is None else torch.full_like(steps, delta),
        "A": -rates if A is None else torch.full_like(rates, A),
        "B": normal(batch, length, N),
        "C": normal(batch, length, N),
        "D": normal(channels),
        "z": normal(batch, length, channels),
        "initial_state": normal(batch, channels, N),
    }
    for name in without:
        del tensors[name]
    valid_steps = torch.rand(batch, length, generator=chance) < 0.6 if valid else None
    weights = [normal(batch, length, channels), normal(batch, channels, N)]
    return Case(tensors, valid_steps, reverse, return_state, seed, weights)


def by_loop(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, *, z: Tensor | None = None,
    valid: Tensor | None = None, initial_state: Tensor | None = None, return_state: bool = False, reverse: bool = False,
) -> Any:  # fmt: skip
    """other_devices.torch_scan behind the arguments of selective_scan."""
    if valid is not None:
        delta = delta.masked_fill(~valid[..., None], 0)
    y, state = other_devices.torch_scan(u, delta, A, B, C, D, initial_state, reverse, u.dtype)
    y = y if z is None else y * F.silu(z)
    return (y, state) if return_state else y


def by_pscan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, *, z: Tensor | None = None,
    valid: Tensor | None = None, initial_state: Tensor | None = None, return_state: bool = False, reverse: bool = False,
) -> Any:  # fmt: skip
    """Somebody else's parallel scan. It starts from zero: the initial state becomes the input of a step before all."""
    turn: Callable[[Tensor], Tensor] = (lambda t: t.flip(1)) if reverse else (lambda t: t)
    if valid is not None:
        delta = delta.masked_fill(~valid[..., None], 0)
    decay = torch.exp(turn(delta)[..., None] * A)
    x = turn(delta * u)[..., None] * turn(B)[:, :, None]
    start = torch.zeros_like(x[:, :1]) if initial_state is None else initial_state[:, None]
    h: Any = pscan(torch.cat([torch.ones_like(start), decay], 1), torch.cat([start, x], 1))
    y = turn((h[:, 1:] @ turn(C)[..., None]).squeeze(-1))
    y = y if D is None else y + D * u
    y = y if z is None else y * F.silu(z)
    return (y, h[:, -1]) if return_state else y


def error(actual: Tensor, truth: Tensor) -> float:
    """Normwise, relative."""
    return (actual.double() - truth).norm().item() / max(truth.norm().item(), TINY)


def checked(case: Case, truth: Scan) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What the kernel found, within the limits of its error, and the truth."""
    expected, actual = case.results(truth, torch.float64), case.results(selective_scan)
    assert actual.keys() == expected.keys()
    for name, result in actual.items():
        assert result.isfinite().all(), name
        assert result.dtype == torch.float32, name
        assert result.shape == expected[name].shape, name
        wrong, limit = error(result, expected[name]), 1e-4 if name.startswith("d") else 1e-5
        if wrong > limit:  # in one step, B·C may cancel to all but nothing: then nobody gets more digits in float32
            limit = error(case.results(by_loop)[name], expected[name])
        assert wrong <= limit, (name, wrong, limit)
    return actual, expected


def check_twice(cases: Iterable[Case], truth: Scan) -> None:
    """No result has more than twice the error of the plain loop in float32.

    One float32 eps is allowed whatever the loop's error is, and errors are taken over several draws at once: a single
    number, or a few of which one is large, can come out exact by luck.
    """
    draws = [(*checked(case, truth), case.results(by_loop)) for case in cases]
    for name in draws[0][0]:
        actual, expected, plain = (
            torch.stack([results[name] for results in column]) for column in zip(*draws, strict=True)
        )
        ours, theirs = error(actual, expected), error(plain, expected)
        assert ours <= 2 * max(theirs, EPS), (name, ours, theirs)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    """Bit for bit."""
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), name


def strided(tensor: Tensor, how: str) -> Tensor:
    """The same numbers laid out in memory another way."""
    if how == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "sliced":
        return F.pad(tensor, (1, 2))[..., 1:-2]
    if how == "stepped":
        return tensor.repeat_interleave(2, -1)[..., ::2]
    if how == "expanded":  # the same for the whole batch (for every channel, if there is no batch): other numbers
        return tensor[:1].expand(tensor.shape)
    return tensor


@st.composite
def cases(choose: st.DrawFn) -> Case:
    case = draw(
        choose(st.integers(0, 2**31)),
        batch=choose(st.integers(1, 4)),
        length=choose(st.one_of(st.integers(1, 100), st.sampled_from([1, CHUNK, CHUNK + 1]))),
        channels=choose(st.sampled_from([1, 5, 16, 17, 40])),
        N=choose(st.sampled_from([1, 4, 8, 16, 24, 64])),
        without=tuple(name for name in OPTIONAL if choose(st.booleans())),
        valid=choose(st.booleans()),
        reverse=choose(st.booleans()),
        return_state=choose(st.booleans()),
    )
    layouts = st.sampled_from(["dense", "dense", "transposed", "sliced", "stepped", "expanded"])
    case.tensors = {name: strided(tensor, choose(layouts)) for name, tensor in case.tensors.items()}
    return case


def test_equals_the_definition(slow: bool) -> None:
    @settings(max_examples=1000 if slow else 100, deadline=None, derandomize=True, database=None)
    @given(cases())
    def holds(case: Case) -> None:
        checked(case, naive.selective_scan)

    holds()


@pytest.mark.parametrize(
    ("draws", "shape", "options"),
    [
        (128, (1, 2, 16, 64), {}),
        (64, (1, 33, 1, 16), {}),
        (24, (3, 33, 5, 1), {"reverse": True}),
        (16, (2, 30, 16, 64), {"valid": True}),
        (16, (2, 60, 17, 16), {}),
        (8, (2, 100, 40, 8), {"reverse": True, "valid": True, "without": OPTIONAL}),
        (8, (4, 64, 40, 24), {"without": ("z",)}),
    ],
)
def test_no_worse_than_twice_the_plain_loop(
    draws: int, shape: tuple[int, ...], options: dict[str, Any], slow: bool
) -> None:
    check_twice((draw(seed, *shape, **options) for seed in range(draws * (8 if slow else 1))), by_loop)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("A", [None, -64.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_extreme_steps(delta: float, A: float | None, reverse: bool) -> None:
    check_twice(
        (draw(seed, 2, 100, 40, 16, delta=delta, A=A, reverse=reverse) for seed in range(2)), naive.selective_scan
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("delta", [None, 20.0])
def test_20_000_steps(delta: float | None, reverse: bool) -> None:
    checked(draw(0, 1, 20_000, 5, 4, delta=delta, reverse=reverse), by_pscan)


@pytest.mark.parametrize("delta", [None, *DELTAS, 1e-3])
def test_long_sequences_are_no_worse_than_twice_the_plain_loop(delta: float | None, slow: bool) -> None:
    """Sums over many steps: a plain running sum of the gradient of D was 10 times worse."""
    case = draw(1, 1, 20_000 if slow else 2000, 5, 4, delta=delta)
    expected = case.results(by_pscan, torch.float64)
    actual, plain = case.results(selective_scan), case.results(by_loop)
    for name, truth in expected.items():
        ours, theirs = error(actual[name], truth), error(plain[name], truth)
        assert ours <= 2 * max(theirs, 2 * EPS), (name, ours, theirs)


@pytest.mark.parametrize("A", [-1.0, -64.0])
def test_the_longest_memory(A: float) -> None:
    """Δ = 1e-6: the decay is 1 - 1e-6, which float32 holds to 6e-8 only: 6 % of the rate of forgetting, in every
    step. A loop in float32 is off by more than 1e-4 after 20,000 of them; decays in two parts are not.
    """
    case = draw(2, 1, 20_000, 5, 4, delta=1e-6, A=A)
    expected, actual = case.results(by_pscan, torch.float64), case.results(selective_scan)
    for name, result in actual.items():
        assert result.isfinite().all(), name
        assert error(result, expected[name]) <= (1e-5 if name in ("y", "state") else 1e-4), name


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("without", [(), OPTIONAL])
@pytest.mark.parametrize("length", [1, 2, 7, 64, 65])
def test_forms_in_plain_torch_agree_with_each_other_and_with_mambapy(
    length: int, without: tuple[str, ...], valid: bool, reverse: bool
) -> None:
    case = draw(3, 2, length, 5, 4, without=without, valid=valid, reverse=reverse)
    for dtype, limit in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        expected = case.results(by_pscan, dtype)
        for form in (naive.selective_scan, by_loop):
            for name, result in case.results(form, dtype).items():
                assert result.dtype == dtype, name
                assert error(result, expected[name].double()) <= limit, (form, name)


@pytest.mark.parametrize("without", [(), ("z",), OPTIONAL])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_only_rounds_inputs_and_results(dtype: torch.dtype, without: tuple[str, ...]) -> None:
    case = draw(4, 2, 70, 17, 8, without=without, valid=True, dtype=dtype)
    expected, actual = case.results(naive.selective_scan, torch.float64), case.results(selective_scan)
    assert actual["state"].dtype == torch.float32
    assert error(actual["state"], expected["state"]) <= 1e-6
    # A result is rounded once; with z, so are silu(z) and the product, forward and backward.
    roundings = 0.5 if "z" in without else 2
    for name, result in actual.items():
        if name != "state":
            assert result.dtype == dtype, name
            assert error(result, expected[name]) <= roundings * torch.finfo(dtype).eps, name


def test_mixed_precision_is_typed_like_u_and_computed_in_the_widest() -> None:
    case = draw(5, dtype=torch.float64)
    expected = case(naive.selective_scan)
    for wide in case.tensors:
        mixed = {name: t if name == wide else t.float() for name, t in case.tensors.items()}
        y, state = case(selective_scan, mixed)
        assert y.dtype == mixed["u"].dtype
        assert state.dtype == (torch.float32 if wide == "z" else torch.float64)
        assert error(y, expected[0]) < 1e-6
    halves = {name: t.to(torch.bfloat16 if name == "u" else torch.float32) for name, t in case.tensors.items()}
    y, state = case(selective_scan, halves)
    assert y.dtype == torch.bfloat16
    assert state.dtype == torch.float32


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("without", [(), *((name,) for name in OPTIONAL), OPTIONAL])
def test_gradients_in_double_precision_equal_differences(without: tuple[str, ...], valid: bool, reverse: bool) -> None:
    """The same kernel, compiled for double; the length crosses the border of a chunk."""
    case = draw(6, 2, CHUNK + 2, 2, 3, without=without, valid=valid, reverse=reverse, dtype=torch.float64)
    case.tensors["delta"] = case.tensors["delta"].clamp(1e-3, 2)
    names = list(case.tensors)

    def scan(*tensors: Tensor) -> Any:
        return case(selective_scan, dict(zip(names, tensors, strict=True)))

    assert torch.autograd.gradcheck(scan, [leaf(tensor) for tensor in case.tensors.values()], fast_mode=True)
    case.return_state = False
    short = draw(7, 1, 3, 17, 2, without=without, valid=valid, reverse=reverse, dtype=torch.float64, return_state=False)
    short.tensors["delta"] = short.tensors["delta"].clamp(1e-3, 2)
    case, names = short, list(short.tensors)
    assert torch.autograd.gradcheck(scan, [leaf(tensor) for tensor in short.tensors.values()])


@pytest.mark.parametrize("wanted", ["u", "delta", "A", "B", "C", "D", "z", "initial_state"])
def test_one_gradient_alone_is_the_same(wanted: str) -> None:
    case = draw(8, return_state=False)
    whole = case.results(selective_scan)
    tensors = {name: leaf(t) if name == wanted else t for name, t in case.tensors.items()}
    (alone,) = torch.autograd.grad(case(selective_scan, tensors), [tensors[wanted]], case.weights[0])
    assert torch.equal(alone, whole[f"d{wanted}"])


def test_gradients_of_gradients_are_refused() -> None:
    case = draw(9, return_state=False)
    tensors = {name: leaf(tensor) for name, tensor in case.tensors.items()}
    (du,) = torch.autograd.grad(case(selective_scan, tensors).sum(), [tensors["u"]], create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        du.sum().backward()


def test_gradients_of_gradients_are_not_dropped_in_silence() -> None:
    """A plain sum sends back a gradient that needs none itself; the gradient's own graph must fail all the same."""
    case = draw(9, return_state=False)
    tensors = {name: leaf(tensor) for name, tensor in case.tensors.items()}
    loss = case(selective_scan, tensors).sum()
    (du,) = torch.autograd.grad(loss, [tensors["u"]], create_graph=True)
    assert du.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula"):
        (loss + du.square().sum()).backward()


def test_without_gradients_nothing_is_kept_for_them() -> None:
    case = draw(10, return_state=False)
    with torch.no_grad():
        tensors = {name: leaf(tensor) for name, tensor in case.tensors.items()}
        assert not case(selective_scan, tensors).requires_grad
    inputs = [case.tensors[name] for name in ("u", "delta", "A", "B", "C", "D")]
    assert torch.ops.whence.selective_scan(*inputs, None, False, False)[2].numel() == 0
    y = torch.ops.whence.selective_scan(*map(leaf, inputs), None, False, False)[0]
    with pytest.raises(UserError, match="gradients switched off"):
        y.sum().backward()


def operands(case: Case, differentiable: bool) -> tuple[Any, ...]:
    """What the operator takes: no z, no mask, a packed state."""
    tensors = {name: leaf(t) if differentiable else t for name, t in case.tensors.items()}
    state = tensors.get("initial_state")
    packed = None if state is None else leaf(pack(state)) if differentiable else pack(state)
    inputs = (tensors.get(name) for name in ("u", "delta", "A", "B", "C", "D"))
    return (*inputs, packed, case.reverse, differentiable)


@pytest.mark.parametrize("differentiable", [False, True])
@pytest.mark.parametrize("without", [("z",), OPTIONAL])
def test_operator_keeps_the_rules_of_torch(without: tuple[str, ...], differentiable: bool) -> None:
    case = draw(11, 2, 5, 17, 3, without=without, reverse=not differentiable)
    torch.library.opcheck(torch.ops.whence.selective_scan.default, operands(case, differentiable))


def test_backward_operator_keeps_the_rules_of_torch() -> None:
    case = draw(12, 2, 40, 17, 3, without=("z",))
    tensors = [t.detach() if isinstance(t, Tensor) else t for t in operands(case, True)]
    marks = torch.ops.whence.selective_scan(*tensors)[2]
    for inputs in (tensors[:6], [*tensors[:5], None]):
        for dlast in (None, torch.randn_like(pack(case.weights[1]))):
            torch.library.opcheck(
                torch.ops.whence.selective_scan_backward.default,
                (case.weights[0], dlast, *inputs, marks, False),
                test_utils=("test_schema", "test_faketensor"),
            )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_equals_eager(dynamic: bool) -> None:
    torch._dynamo.reset()
    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(selective_scan, fullgraph=True, backend=graphs, dynamic=dynamic)
    cases = [draw(13, 2, 40, 17, 4, valid=True)]
    if dynamic:  # one compilation for all batches and lengths, of one chunk and of several
        cases += [draw(14, 3, 77, 17, 4, valid=True), draw(15, 4, 9, 17, 4, valid=True)]
    for case in cases:
        same(case.results(compiled), case.results(selective_scan))
    assert graphs.frame_count == 1
    torch._dynamo.reset()


class Module(torch.nn.Module):
    """The scan with parameters of its own, for export."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.A, self.D = (torch.nn.Parameter(case.tensors[name]) for name in ("A", "D"))

    def forward(
        self, u: Tensor, delta: Tensor, B: Tensor, C: Tensor, z: Tensor, initial_state: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        return selective_scan(
            u,
            delta,
            self.A,
            B,
            C,
            self.D,
            z=z,
            valid=valid,
            initial_state=initial_state,
            return_state=True,
            reverse=True,
        )


def test_exported_program_gives_the_same_numbers() -> None:
    names = ("u", "delta", "B", "C", "z", "initial_state")
    case, other = draw(16, 2, 40, 17, 4, valid=True), draw(17, 3, 70, 17, 4, valid=True)
    module = Module(case)
    batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2)
    sizes = [{0: batch, 1: length}] * 5 + [{0: batch}, {0: batch, 1: length}]
    inputs = (*(case.tensors[name] for name in names), case.valid)
    program = torch.export.export(module, inputs, dynamic_shapes=tuple(sizes))
    assert "whence.selective_scan" in str(program.graph)
    for one in (case, other):
        inputs = (*(one.tensors[name] for name in names), one.valid)
        for exported, eager in zip(program.module()(*inputs), module(*inputs), strict=True):
            assert torch.equal(exported, eager)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_shapes_without_data(dtype: torch.dtype) -> None:
    case = draw(18, 2, 40, 17, 3, dtype=dtype)
    real = case(selective_scan)
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        fakes = {name: mode.from_tensor(t) for name, t in case.tensors.items()}
        fake = case(selective_scan, fakes)
    metas = case(selective_scan, {name: t.to("meta") for name, t in case.tensors.items()})
    for actual in (fake, metas):
        for without_data, with_data in zip(actual, real, strict=True):
            assert without_data.shape == with_data.shape
            assert without_data.dtype == with_data.dtype


def test_packing_is_undone_by_unpacking() -> None:
    for channels in (1, 16, 17, 40):
        state = torch.randn(2, channels, 3)
        assert pack(state).shape == (2, -(-channels // 16), 3, 16)
        assert torch.equal(unpack(pack(state), channels), state)


@pytest.mark.parametrize("reverse", [False, True])
def test_dropped_steps_leave_no_trace(reverse: bool) -> None:
    """Bit for bit the same outputs at valid steps, state and gradients as in the sequence without the others.

    Without z, here and below: the last bit of torch's silu depends on the place of a number in its tensor.
    """
    case = draw(19, 1, 100, 17, 5, valid=True, reverse=reverse, without=("z",))
    assert case.valid is not None
    valid_steps = case.valid[0]
    case.weights[0][:, ~valid_steps] = 0
    long = case.results(selective_scan)
    timed = ("u", "delta", "B", "C")
    case.tensors |= {name: case.tensors[name][:, valid_steps] for name in timed}
    case.weights[0] = case.weights[0][:, valid_steps]
    case.valid = None
    short = case.results(selective_scan)
    for name in ("y", *(f"d{name}" for name in timed)):
        assert torch.equal(long[name][:, valid_steps], short[name]), name
    for name in ("state", "dinitial_state"):
        assert torch.equal(long[name], short[name]), name
    for name in ("dA", "dD"):  # sums over steps, in other groups
        torch.testing.assert_close(long[name], short[name])
    for name in ("du", "ddelta", "dB"):
        assert not long[name][:, ~valid_steps].any(), name


def test_dropped_steps_read_the_state_as_it_was() -> None:
    case = draw(20, 2, 40, 17, 5, valid=True, without=("z",))
    assert case.valid is not None
    case.tensors["delta"] = leaf(case.tensors["delta"])
    y, state = case(selective_scan)
    # the state after each step, from scans that end there
    names = ("u", "delta", "B", "C")
    before = case.tensors["initial_state"]
    for t in range(case.valid.shape[1]):
        step = case.tensors | {name: case.tensors[name][:, t : t + 1] for name in names} | {"initial_state": before}
        here, after = selective_scan(**step, valid=case.valid[:, t : t + 1], return_state=True)
        dropped = ~case.valid[:, t]
        assert torch.equal(after[dropped], before[dropped])
        assert not torch.equal(after[~dropped], before[~dropped]) or dropped.all()
        assert torch.equal(here[:, 0], y[:, t])
        before = after
    assert torch.equal(state, before)
    # y at a dropped step depends on u there through D alone
    tensors = case.tensors | {"u": leaf(case.tensors["u"])}
    y, state = case(selective_scan, tensors)
    du, ddelta = torch.autograd.grad([y, state], [tensors["u"], tensors["delta"]], case.weights)
    assert torch.equal(du[~case.valid], (case.weights[0] * tensors["D"])[~case.valid])
    assert not ddelta[~case.valid].any()


def test_nothing_kept_is_the_initial_state() -> None:
    case = draw(21, without=("D", "z"))
    case.valid = torch.zeros(2, 50, dtype=torch.bool)
    y, state = case(selective_scan)
    assert torch.equal(state, case.tensors["initial_state"])
    torch.testing.assert_close(y, torch.einsum("bdn,bln->bld", state, case.tensors["C"]))


def test_all_kept_is_the_same_as_no_mask() -> None:
    case = draw(22)
    plain = case.results(selective_scan)
    case.valid = torch.ones(2, 50, dtype=torch.bool)
    same(case.results(selective_scan), plain)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cut", [1, 31, CHUNK, 33, 50, 99])
def test_two_halves_in_turn_are_the_whole(cut: int, reverse: bool) -> None:
    """Bit for bit, wherever the cut is; the gradients up to rounding, because sums over steps are grouped otherwise."""
    case = draw(23, 2, 100, 17, 5, reverse=reverse, without=("z",))

    def in_turn(*, return_state: bool, valid: None, initial_state: Tensor, **tensors: Any) -> tuple[Tensor, Tensor]:
        timed = ("u", "delta", "B", "C")
        left = tensors | {name: tensors[name][:, :cut] for name in timed}
        right = tensors | {name: tensors[name][:, cut:] for name in timed}
        first, second = (right, left) if reverse else (left, right)
        y1, between = selective_scan(**first, initial_state=initial_state, return_state=True)
        y2, last = selective_scan(**second, initial_state=between, return_state=True)
        return torch.cat([y2, y1] if reverse else [y1, y2], 1), last

    whole, halves = case.results(selective_scan), case.results(in_turn)
    for name in ("y", "state", "du", "ddelta", "dB", "dC", "dinitial_state"):
        assert torch.equal(halves[name], whole[name]), name
    for name in ("dA", "dD"):
        assert error(halves[name], whole[name].double()) < 1e-6, name


def test_reverse_is_flip_scan_flip() -> None:
    """Bit for bit, gradients too."""
    case = draw(24, 2, 70, 17, 5, valid=True, reverse=True, without=("z",))
    backward = case.results(selective_scan)

    def flipped(*, return_state: bool, reverse: bool, valid: Tensor, **tensors: Tensor) -> tuple[Tensor, Tensor]:
        turned = {name: t.flip(1) if name in ("u", "delta", "B", "C") else t for name, t in tensors.items()}
        y, state = selective_scan(**turned, valid=valid.flip(1), return_state=True)
        return y.flip(1), state

    same(case.results(flipped), backward)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(1, 40, 1, 4), (3, 70, 40, 16), (1, 70, 300, 16), (9, 5, 2048, 16)])
def test_same_bits_for_any_number_of_threads(shape: tuple[int, ...]) -> None:
    case, actual = draw(25, *shape), []
    for count in (1, 2, 3, 8, 2, 1):
        torch.set_num_threads(count)
        actual.append(case.results(selective_scan))
    for other in actual[1:]:
        same(other, actual[0])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [1, 2])
def test_calls_from_several_python_threads(count: int) -> None:
    torch.set_num_threads(count)
    cases = [draw(seed, 3, 100, 40, 16) for seed in range(4)]
    alone = [case.results(selective_scan) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda case: case.results(selective_scan), cases * 5))
    for index, actual in enumerate(together):
        same(actual, alone[index % len(cases)])


def test_memory_is_not_laid_out_in_time_and_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LARGE", 1 << 60)  # all of it from torch, whose profiler sees nothing else
    batch, length, channels, N = 2, 512, 128, 32
    case = draw(26, batch, length, channels, N, valid=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        case.results(selective_scan)
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    sizes = [event.nbytes() for event in events if event.name() == "[memory]"]
    largest = max(sizes)
    inputs = (batch, length, channels)
    assert largest >= 4 * math.prod(inputs)  # it does see them
    assert largest < 4 * math.prod(inputs) * N / 8


PROCESS = """
import os, resource, signal, torch
from whence.kernels import selective_scan

def scan(length):
    chance = torch.Generator().manual_seed(0)
    u, delta = (torch.rand(4, length, 128, generator=chance).requires_grad_() for _ in range(2))
    B, C = (torch.rand(4, length, 64, generator=chance).requires_grad_() for _ in range(2))
    A = (-torch.rand(128, 64, generator=chance)).requires_grad_()
    selective_scan(u, delta, A, B, C).sum().backward()
    return A.grad

torch.set_num_threads(2)
scan(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
parents = scan(1024)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
child = os.fork()
if not child:
    signal.alarm(20)
    torch.set_num_threads(1)
    os._exit(0 if torch.equal(scan(1024), parents) else 3)
print(grown * 1024, os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ru_maxrss has other units, and fork is not to be used")
def test_memory_of_a_whole_process_and_its_fork(source: Path) -> None:
    """Memory: also what the kernel allocates itself, which torch's profiler does not see.

    A forked child can scan on one thread. On more it would wait forever for threads that were not forked with it, as
    it would in any operation of torch.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROCESS], env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    grown, child = map(int, done.stdout.split())
    assert grown < 4 * 1024 * 128 * 64 * 4 / 2
    assert child == 0


def wrong(name: str) -> dict[str, Tensor]:
    tensors = draw(27, 2, 6, 5, 3).tensors | {"valid": torch.ones(2, 6, dtype=torch.bool)}
    return {name: tensors[name]} | tensors  # the culprit first, for readability of failures


@pytest.mark.parametrize("name", ["delta", "A", "B", "C", "D", "z", "valid", "initial_state"])
def test_a_wrong_shape_is_named(name: str) -> None:
    tensors = wrong(name)
    good = tensors[name]
    for bad in (good[..., :-1], good[None], good[0], torch.cat([good, good])):
        with pytest.raises(ValueError, match=rf"\b{name} (has shape|\()|and {name} \(") as raised:
            selective_scan(**(tensors | {name: bad}))
        assert str(tuple(bad.shape)) in str(raised.value)


@pytest.mark.parametrize("name", ["u", "delta", "A", "B", "C", "D", "z", "initial_state"])
def test_a_type_that_is_not_real_is_named(name: str) -> None:
    tensors = wrong(name)
    for kind in (torch.complex64, torch.bool, *((torch.int64,) if name == "u" else ())):
        with pytest.raises(ValueError, match=rf"{name} is {kind}"):
            selective_scan(**(tensors | {name: tensors[name].to(kind)}))


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.float32])
def test_valid_must_be_bool(kind: torch.dtype) -> None:
    tensors = wrong("valid")
    with pytest.raises(ValueError, match=rf"valid is {kind}; it must be bool"):
        selective_scan(**(tensors | {"valid": tensors["valid"].to(kind)}))


@pytest.mark.parametrize("name", ["delta", "A", "B", "C", "D", "z", "valid", "initial_state"])
def test_another_device_is_named(name: str) -> None:
    tensors = wrong(name)
    with pytest.raises(ValueError, match=f"{name} is on meta, u on cpu"):
        selective_scan(**(tensors | {name: tensors[name].to("meta")}))


def test_u_of_a_wrong_shape_is_named() -> None:
    tensors = wrong("u")
    for bad in (tensors["u"][0], tensors["u"][None]):
        with pytest.raises(ValueError, match="u must be"):
            selective_scan(**(tensors | {"u": bad}))


@pytest.mark.parametrize(("length", "N"), [(0, 3), (6, 0)])
def test_nothing_to_scan(length: int, N: int) -> None:
    with pytest.raises(ValueError, match=f"length {length} and N={N}"):
        draw(28, 2, length, 5, N)(selective_scan)


@pytest.mark.parametrize(("batch", "channels"), [(0, 5), (2, 0)])
def test_empty_batches_have_empty_results(batch: int, channels: int) -> None:
    case = draw(29, batch, 6, channels, 3)
    for name, result in case.results(selective_scan).items():
        expected = case.tensors[name[1:]].shape if name.startswith("d") else case.weights[name == "state"].shape
        assert result.shape == expected, name
        assert not result.any(), name


def test_not_a_number_stays_one() -> None:
    """Where it enters, and after; not before, not in other channels or sequences."""
    case = draw(30, 2, 40, 17, 4, without=("z",))
    for name in ("u", "delta"):
        tensors = case.tensors | {name: case.tensors[name].clone()}
        tensors[name][0, 20, 3] = math.nan
        y, state = case(selective_scan, tensors)
        assert y[0, 20:, 3].isnan().all()
        assert state[0, 3].isnan().all()
        y[0, 20:, 3] = 0
        assert y.isfinite().all()
        assert state[1].isfinite().all()


def stand_in(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, *, return_last_state: bool
) -> Any:
    """mamba_ssm's selective_scan_fn, by its documentation: time last, A and D in float32, the rest typed alike."""
    assert return_last_state
    assert u.dtype == delta.dtype == B.dtype == C.dtype
    assert A.dtype == torch.float32
    assert D is None or D.dtype == torch.float32
    assert all(tensor.stride(-1) == 1 for tensor in (u, delta, B, C))
    timed = (tensor.transpose(1, 2).float() for tensor in (u, delta, B, C))
    u_, delta_, B_, C_ = timed
    y, state = naive.selective_scan(u_, delta_, A, B_, C_, D, return_state=True)
    return y.transpose(1, 2).to(u.dtype), state


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("without", [("z", "initial_state"), OPTIONAL])
def test_layout_around_mamba_ssm(reverse: bool, without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    interface: Any = types.ModuleType("mamba_ssm.ops.selective_scan_interface")
    interface.selective_scan_fn = stand_in
    for name in ("mamba_ssm", "mamba_ssm.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    case = draw(31, 2, 9, 5, 3, without=without, reverse=reverse)

    def adapted(*, valid: None, return_state: bool, D: Tensor | None = None, **tensors: Any) -> tuple[Tensor, Tensor]:
        return other_devices.mamba_ssm_scan(**tensors, D=D)

    expected = case.results(naive.selective_scan)
    for name, result in case.results(adapted).items():
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, expected[name], msg=name)
    y, state = case(adapted, {name: t.bfloat16() for name, t in case.tensors.items()})
    assert y.dtype == torch.bfloat16
    assert state.dtype == torch.float32
