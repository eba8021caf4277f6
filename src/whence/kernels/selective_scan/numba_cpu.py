"""The selective scan on a CPU: all channels of a step side by side in vector lanes, one pass forward, two backward.

The state is never laid out in time. Forward keeps it every CHUNK steps; backward goes through the chunks from the
last to the first, recomputes the decays and states of one chunk into a buffer that fits the cache, and sweeps it in
reverse. Memory beyond inputs and outputs is one state per CHUNK steps, and the gradients of B
and C once per span of channels.

Work is cut into jobs (one sequence × SPAN·16 channels), by shape alone: whichever thread takes a job, it does the
same additions in the same order, so results are the same bits for any number of threads.

Layout: channels come in groups of 16 lanes. `A`, and everything shaped like a state, is packed as (…, groups, N, 16).
`A` is multiplied by log₂e beforehand, because the decay is computed as a power of two.

Decays are used in two parts, 2^k and the rest: single precision holds 1 − 1e-6 to one digit only, and over 20,000
steps of a slow memory the lost digits add up to errors of 1e-3.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whence.kernels.launch import Kernel
from whence.kernels.memory import room
from whence.kernels.simd import (
    WIDTH,
    cut,
    dense,
    exp2_power,
    exp2_rest,
    fetch,
    load,
    spread,
    store,
    store_totals,
    take_number,
    whole_groups,
    zeros,
)

CHUNK = 32
SPAN = 8  # groups per job at most: sums over channels are cheaper, and rows longer, when a job has many
JOBS = 8  # but not so many that a machine's cores stay idle
LN2 = math.log(2)


def forward(counter, u, delta, A, B, C, D, state, reverse, y, last, marks, span):
    """y, the last state, and with room in `marks` (batch, chunks, groups, N, 16) the state before every chunk."""
    batch, length, _ = u.shape
    groups, N, _ = A.shape
    spans = (groups + span - 1) // span
    first, step = (length - 1, -1) if reverse else (0, 1)
    states = np.empty((span, N, 16), u.dtype)
    while True:
        job = take_number(counter)
        if job >= batch * spans:
            break
        b, start = job // spans, job % spans * span
        stop = min(groups, start + span)
        for g in range(start, stop):
            for n in range(N):
                store(states, (g - start, n, 0), load(state, (b, g, n, 0)))
        for begin in range(0, length, CHUNK):
            for g in range(start, stop):
                d, k = g * 16, g - start
                if marks.shape[1]:
                    for n in range(N):
                        store(marks, (b, begin // CHUNK, g, n, 0), load(states, (k, n, 0)))
                skip = load(D, (d,))
                for t in range(begin, min(length, begin + CHUNK)):
                    row = first + step * t
                    fetch(u, (b, row + step * CHUNK, d))
                    fetch(delta, (b, row + step * CHUNK, d))
                    dt, ut = load(delta, (b, row, d)), load(u, (b, row, d))
                    x, out = dt * ut, skip * ut
                    for n in range(N):
                        h, z = load(states, (k, n, 0)), dt * load(A, (g, n, 0))
                        v = exp2_power(z) * h + (exp2_rest(z) * h + x * spread(B, (b, row, n)))
                        store(states, (k, n, 0), v)
                        out = out + v * spread(C, (b, row, n))
                    store(y, (b, row, d), out)
        for g in range(start, stop):
            for n in range(N):
                store(last, (b, g, n, 0), load(states, (g - start, n, 0)))


def backward(counter, u, delta, A, B, C, D, marks, dy, dlast, reverse, du, ddelta, dA, dB, dC, dD, dstate, span):
    """Gradients. dA comes per sequence, dD per sequence and chunk, dB and dC per span of channels; the caller adds.

    The last axis of dB and dC is N rounded up to a multiple of 4, because four sums are made at a time.
    """
    batch, length, _ = u.shape
    groups, N, _ = A.shape
    spans = (groups + span - 1) // span
    first, step = (length - 1, -1) if reverse else (0, 1)
    h = np.empty((N, 16), u.dtype)
    adjoint = np.empty((span, N, 16), u.dtype)  # ∂loss/∂state, of every group of the span
    slope = np.empty((N, 16), u.dtype)  # ∂loss/∂A of one chunk: adding up chunks, not steps, keeps long sums accurate
    powers = np.empty((CHUNK, N, 16), u.dtype)  # the decays, in two parts
    rests = np.empty((CHUNK, N, 16), u.dtype)
    faded = np.empty((CHUNK, N, 16), u.dtype)  # decay · previous state
    by_B = np.zeros((CHUNK, dB.shape[3], 16), u.dtype)  # summed over groups here, over lanes once per chunk
    by_C = np.zeros((CHUNK, dB.shape[3], 16), u.dtype)
    ln2 = np.full(16, LN2, u.dtype)
    while True:
        job = take_number(counter)
        if job >= batch * spans:
            break
        b, s = job // spans, job % spans
        start = s * span
        stop = min(groups, start + span)
        for g in range(start, stop):
            for n in range(N):
                store(adjoint, (g - start, n, 0), load(dlast, (b, g, n, 0)))
                store(dA, (b, g, n, 0), zeros(u))
        for chunk in range((length - 1) // CHUNK, -1, -1):
            begin = chunk * CHUNK
            end = min(length, begin + CHUNK)
            for i in range(end - begin):
                for n in range(N):
                    store(by_B, (i, n, 0), zeros(u))
                    store(by_C, (i, n, 0), zeros(u))
            for g in range(start, stop):
                d = g * 16
                for n in range(N):
                    store(h, (n, 0), load(marks, (b, chunk, g, n, 0)))
                    store(slope, (n, 0), zeros(u))
                for t in range(begin, end):
                    i, row = t - begin, first + step * t
                    for array in (u, delta, dy):
                        fetch(array, (b, row - step * CHUNK, d))
                    dt, ut, dyt = load(delta, (b, row, d)), load(u, (b, row, d)), load(dy, (b, row, d))
                    x = dt * ut
                    for n in range(N):
                        z, before = dt * load(A, (g, n, 0)), load(h, (n, 0))
                        power, rest = exp2_power(z), exp2_rest(z)
                        little = rest * before
                        v = power * before + (little + x * spread(B, (b, row, n)))
                        w = power * before + little
                        store(powers, (i, n, 0), power)
                        store(rests, (i, n, 0), rest)
                        store(faded, (i, n, 0), w)
                        store(h, (n, 0), v)
                        store(by_C, (i, n, 0), load(by_C, (i, n, 0)) + dyt * v)
                skip, by_D = load(D, (d,)), zeros(u)
                for t in range(end - 1, begin - 1, -1):
                    i, row = t - begin, first + step * t
                    dt, ut, dyt = load(delta, (b, row, d)), load(u, (b, row, d)), load(dy, (b, row, d))
                    x, by_x, by_exponent = dt * ut, zeros(u), zeros(u)
                    for n in range(N):
                        q = load(adjoint, (g - start, n, 0)) + dyt * spread(C, (b, row, n))
                        store(by_B, (i, n, 0), load(by_B, (i, n, 0)) + q * x)
                        by_x = by_x + q * spread(B, (b, row, n))
                        e = q * load(faded, (i, n, 0))
                        by_exponent = by_exponent + e * load(A, (g, n, 0))
                        store(slope, (n, 0), load(slope, (n, 0)) + e * dt)
                        store(adjoint, (g - start, n, 0), q * load(powers, (i, n, 0)) + q * load(rests, (i, n, 0)))
                    store(du, (b, row, d), by_x * dt + dyt * skip)
                    store(ddelta, (b, row, d), by_x * ut + by_exponent * load(ln2, (0,)))
                    by_D = by_D + dyt * ut
                store(dD, (b, chunk, d), by_D)
                for n in range(N):
                    store(dA, (b, g, n, 0), load(dA, (b, g, n, 0)) + load(slope, (n, 0)))
            for t in range(begin, end):
                i, row = t - begin, first + step * t
                for n in range(0, N, 4):
                    store_totals(by_B, (i, n, 0), dB, (s, b, row, n))
                    store_totals(by_C, (i, n, 0), dC, (s, b, row, n))
        for g in range(start, stop):
            for n in range(N):
                store(dstate, (b, g, n, 0), load(adjoint, (g - start, n, 0)))


def _signatures(scalar: Any) -> tuple[Any, Any]:
    counter, flag, count = numba.int64[::1], numba.boolean, numba.int64
    rows = scalar[:, :, :]  # inputs: any strides, as long as the last axis is dense
    line, dense, packed, chunks = (numba.types.Array(scalar, axes, "C") for axes in (1, 3, 4, 5))
    inputs = (counter, rows, rows, dense, rows, rows, line)
    return (
        numba.void(*inputs, packed, flag, dense, packed, chunks, count),
        numba.void(*inputs, chunks, rows, packed, flag, dense, dense, packed, packed, packed, dense, packed, count),
    )


_SINGLE, _DOUBLE = (_signatures(scalar) for scalar in (numba.float32, numba.float64))
FORWARD = {torch.float32: Kernel(forward, _SINGLE[0]), torch.float64: Kernel(forward, _DOUBLE[0])}
BACKWARD = {torch.float32: Kernel(backward, _SINGLE[1]), torch.float64: Kernel(backward, _DOUBLE[1])}


def state_shape(u: Tensor, A: Tensor) -> tuple[int, int, int, int]:
    """(batch, groups, N, 16): a state as the kernels hold it."""
    return u.shape[0], (u.shape[2] + WIDTH - 1) // WIDTH, A.shape[1], WIDTH


def marks_shape(u: Tensor, A: Tensor) -> tuple[int, int]:
    """Of the states that forward keeps for backward, one per chunk.

    Flat, because a traced axis of chunks alone would split all lengths into those of one chunk and those of more:
    torch.export would refuse a length that may be either.
    """
    batch, groups, N, width = state_shape(u, A)
    return batch, (u.shape[1] + CHUNK - 1) // CHUNK * groups * N * width


def pack(state: Tensor) -> Tensor:
    """(…, channels, N) → (…, groups, N, 16), with zeros for the channels that fill up the last group."""
    spare = -state.shape[-2] % WIDTH
    padded = F.pad(state, (0, 0, 0, spare)) if spare else state
    return padded.unflatten(-2, (-1, WIDTH)).transpose(-1, -2).contiguous()


def unpack(packed: Tensor, channels: int) -> Tensor:
    return packed.transpose(-1, -2).flatten(-3, -2)[..., :channels, :]


class Inputs:
    """The tensors of a scan as the kernels want them: one precision, dense last axes, whole groups of channels."""

    def __init__(
        self, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, precision: torch.dtype
    ) -> None:
        self.state_shape = batch, self.groups, _, _ = state_shape(u, A)
        self.precision = precision
        self.span = max(1, min(SPAN, batch * self.groups // JOBS))
        self.spans = -(-self.groups // self.span)
        self.jobs = batch * self.spans
        self.u = whole_groups(u.to(precision))
        skip = torch.zeros(self.groups * WIDTH, dtype=precision, device="cpu")
        if D is not None:
            skip[: u.shape[2]] = D
        self.arguments = (
            self.u,
            whole_groups(delta.to(precision)),
            pack(A.to(precision)) * (1 / LN2),
            dense(B.to(precision)),
            dense(C.to(precision)),
            skip,
        )

    def state(self, packed: Tensor | None) -> Tensor:
        """Given, or zeros."""
        if packed is None:
            return torch.zeros(self.state_shape, dtype=self.precision, device="cpu")
        return packed.to(self.precision).contiguous()

    def new(self, *shape: int) -> Tensor:
        return room(*shape, dtype=self.precision)


def _by_chunk(marks: Tensor, state: Tensor) -> Tensor:
    """(batch, chunks, groups, N, 16); no chunks if no marks are saved."""
    batch, *rest = state.shape
    return marks.view(batch, -1, *rest) if marks.numel() else marks.new_empty(batch, 0, *rest)


def scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    state: Tensor | None,
    reverse: bool,
    differentiable: bool,
    precision: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, the last state, and the states that the gradients need; states packed."""
    inputs = Inputs(u, delta, A, B, C, D, precision)
    first = inputs.state(state)
    y, last = inputs.new(*inputs.u.shape), torch.empty_like(first)
    marks = inputs.new(*marks_shape(u, A) if differentiable else (0, 0))
    states = _by_chunk(marks, first)
    FORWARD[precision](inputs.jobs, *inputs.arguments, first, reverse, y, last, states, inputs.span)
    return cut(y, u.shape[2]), last, marks


class Gradients(NamedTuple):
    u: Tensor
    delta: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor
    state: Tensor


def gradients(
    dy: Tensor,
    dlast: Tensor | None,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    marks: Tensor,
    reverse: bool,
) -> Gradients:
    """`marks` as `scan` returned them; `dlast` and the gradient of the state are packed."""
    inputs = Inputs(u, delta, A, B, C, D, marks.dtype)
    (batch, length, channels), N = u.shape, A.shape[1]
    du, ddelta = inputs.new(*inputs.u.shape), inputs.new(*inputs.u.shape)
    dA, dstate = inputs.new(*inputs.state_shape), inputs.new(*inputs.state_shape)
    dBC = inputs.new(2, inputs.spans, batch, length, N + -N % 4)
    after = inputs.state(dlast)
    states = _by_chunk(marks, after)
    dD = inputs.new(batch, states.shape[1], inputs.groups * WIDTH)
    results = (du, ddelta, dA, *dBC, dD, dstate)
    BACKWARD[marks.dtype](
        inputs.jobs, *inputs.arguments, states, whole_groups(dy.to(marks.dtype)), after, reverse, *results, inputs.span
    )
    dB, dC = (by_span.sum(0)[..., :N] for by_span in dBC)
    return Gradients(
        cut(du, channels),
        cut(ddelta, channels),
        unpack(dA.sum(0), channels),
        dB,
        dC,
        dD.sum((0, 1))[:channels],
        dstate,
    )
