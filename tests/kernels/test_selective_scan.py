"""The CPU kernel of the selective scan, held to its definition in float64 and to what plain torch makes of it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from mambapy.pscan import pscan
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from whence.kernels import selective_scan
from whence.kernels.selective_scan import mamba_ssm, naive, torch_loop
from whence.kernels.selective_scan.numba_cpu import CHUNK, marks_shape, pack, unpack

Scan = Callable[..., Any]
EPS = torch.finfo(torch.float32).eps
# Gradients through many decays are too small for float32 (e⁻¹²⁸⁰ after one step of Δ·A = 20·64). That they come out
# as 0, or as 2⁻¹²⁵ where the kernel stops, is no error: sizes below this count as this.
TINY = 1e-30
DELTAS = (1e-6, 20.0)
OPTIONAL = ("D", "z", "initial_state")


@dataclass
class Case:
    """The arguments of one scan."""

    tensors: dict[str, Tensor]
    keep: Tensor | None = None
    reverse: bool = False
    return_state: bool = True
    weights: list[Tensor] = field(default_factory=list)  # of y and the state in the loss whose gradients are compared

    def __call__(self, scan: Scan, tensors: dict[str, Tensor] | None = None) -> Any:
        given = self.tensors if tensors is None else tensors
        return scan(**given, keep=self.keep, reverse=self.reverse, return_state=self.return_state)

    def results(self, scan: Scan, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """y, state, and the gradient of every tensor under its name with a d in front."""
        tensors = {name: leaf(tensor if dtype is None else tensor.to(dtype)) for name, tensor in self.tensors.items()}
        found = self(scan, tensors)
        outputs = list(found) if self.return_state else [found]
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
    keep: bool = False,
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
    kept = torch.rand(batch, length, generator=chance) < 0.6 if keep else None
    weights = [normal(batch, length, channels), normal(batch, channels, N)]
    return Case(tensors, kept, reverse, return_state, weights)


def by_loop(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, *, z: Tensor | None = None,
    keep: Tensor | None = None, initial_state: Tensor | None = None, return_state: bool = False, reverse: bool = False,
) -> Any:  # fmt: skip
    """torch_loop.scan behind the arguments of selective_scan."""
    if keep is not None:
        delta = delta.masked_fill(~keep[..., None], 0)
    y, state = torch_loop.scan(u, delta, A, B, C, D, initial_state, reverse, u.dtype)
    y = y if z is None else y * F.silu(z)
    return (y, state) if return_state else y


def by_pscan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, *, z: Tensor | None = None,
    keep: Tensor | None = None, initial_state: Tensor | None = None, return_state: bool = False, reverse: bool = False,
) -> Any:  # fmt: skip
    """Somebody else's parallel scan. It starts from zero: the initial state becomes the input of a step before all."""
    turn: Callable[[Tensor], Tensor] = (lambda t: t.flip(1)) if reverse else (lambda t: t)
    if keep is not None:
        delta = delta.masked_fill(~keep[..., None], 0)
    decay = torch.exp(turn(delta)[..., None] * A)
    x = turn(delta * u)[..., None] * turn(B)[:, :, None]
    start = torch.zeros_like(x[:, :1]) if initial_state is None else initial_state[:, None]
    h: Any = pscan(torch.cat([torch.ones_like(start), decay], 1), torch.cat([start, x], 1))
    y = turn((h[:, 1:] @ turn(C)[..., None]).squeeze(-1))
    y = y if D is None else y + D * u
    y = y if z is None else y * F.silu(z)
    return (y, h[:, -1]) if return_state else y


def error(found: Tensor, truth: Tensor) -> float:
    """Normwise, relative."""
    return (found.double() - truth).norm().item() / max(truth.norm().item(), TINY)


def errors(case: Case, truth: Scan = naive.selective_scan) -> dict[str, tuple[float, float]]:
    """Of each result: the kernel's error and that of the plain loop in float32."""
    expected = case.results(truth, torch.float64)
    found, plain = case.results(selective_scan), case.results(by_loop)
    assert found.keys() == expected.keys() == plain.keys()
    for name, result in found.items():
        assert result.isfinite().all(), name
        assert result.dtype == plain[name].dtype, name
        assert result.shape == expected[name].shape, name
    return {name: (error(found[name], expected[name]), error(plain[name], expected[name])) for name in expected}


def check(case: Case, truth: Scan = naive.selective_scan) -> None:
    for name, (ours, plain) in errors(case, truth).items():
        assert ours <= (1e-4 if name.startswith("d") else 1e-5), (name, ours)
        assert ours <= 2 * max(plain, EPS), (name, ours, plain)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    """Bit for bit."""
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), name


# ---------------------------------------------------------------------------------------------------------------------
# Accuracy


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
        keep=choose(st.booleans()),
        reverse=choose(st.booleans()),
        return_state=choose(st.booleans()),
    )
    layouts = st.sampled_from(["dense", "dense", "transposed", "sliced", "stepped", "expanded"])
    case.tensors = {name: strided(tensor, choose(layouts)) for name, tensor in case.tensors.items()}
    return case


def test_equals_the_definition(slow: bool) -> None:
    @settings(max_examples=1000 if slow else 80, deadline=None, derandomize=True, database=None)
    @given(cases())
    def holds(case: Case) -> None:
        check(case)

    holds()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("A", [None, -64.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_extreme_steps(delta: float, A: float | None, reverse: bool) -> None:
    check(draw(length=100, channels=40, N=16, delta=delta, A=A, reverse=reverse))
