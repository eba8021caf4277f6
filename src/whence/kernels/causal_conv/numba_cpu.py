"""Convolution, bias and SiLU in one pass over memory; backward recomputes what it needs in another.

Work is cut into jobs as in the selective scan: one sequence × 16 channels, the same bits for any number of threads.
Weights come as (taps, channels), channels in whole groups of 16.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from whence.kernels.launch import Kernel
from whence.kernels.memory import room
from whence.kernels.simd import WIDTH, cut, exp2, load, store, take_number, whole_groups, zeros

BLOCK = 64  # steps whose share of a weight's gradient is added up before it joins the total
LOG2E = 1 / math.log(2)


def forward(counter, x, weight, bias, reverse, y):
    batch, length, channels = x.shape
    taps = weight.shape[0]
    groups = channels // WIDTH
    first, step = (length - 1, -1) if reverse else (0, 1)
    ones = np.ones(WIDTH, x.dtype)
    scale = np.full(WIDTH, -LOG2E, x.dtype)
    while True:
        job = take_number(counter)
        if job >= batch * groups:
            break
        b, d = job // groups, job % groups * WIDTH
        for t in range(length):
            out = load(bias, (d,))
            for k in range(max(0, taps - 1 - t), taps):
                out = out + load(weight, (k, d)) * load(x, (b, first + step * (t + k + 1 - taps), d))
            one = load(ones, (0,))
            store(y, (b, first + step * t, d), out / (one + exp2(out * load(scale, (0,)))))


def backward(counter, x, weight, bias, dy, reverse, dx, dweight, dbias):
    """dweight (batch, taps, channels) and dbias (batch, channels) come per sequence; the caller adds them up."""
    batch, length, channels = x.shape
    taps = weight.shape[0]
    groups = channels // WIDTH
    first, step = (length - 1, -1) if reverse else (0, 1)
    ones = np.ones(WIDTH, x.dtype)
    scale = np.full(WIDTH, -LOG2E, x.dtype)
    slopes = np.empty((taps, WIDTH), x.dtype)  # gradients of the latest `taps` sums, as a ring
    part = np.empty((taps, WIDTH), x.dtype)
    while True:
        job = take_number(counter)
        if job >= batch * groups:
            break
        b, d = job // groups, job % groups * WIDTH
        store(dbias, (b, d), zeros(x))
        for k in range(taps):
            store(dweight, (b, k, d), zeros(x))
            store(slopes, (k, 0), zeros(x))
        for begin in range(0, length + taps - 1, BLOCK):
            by_bias = zeros(x)
            for k in range(taps):
                store(part, (k, 0), zeros(x))
            for t in range(begin, min(length + taps - 1, begin + BLOCK)):
                slope = zeros(x)
                if t < length:
                    out = load(bias, (d,))
                    oldest = max(0, taps - 1 - t)
                    for k in range(oldest, taps):
                        out = out + load(weight, (k, d)) * load(x, (b, first + step * (t + k + 1 - taps), d))
                    one = load(ones, (0,))
                    gate = one / (one + exp2(out * load(scale, (0,))))
                    slope = load(dy, (b, first + step * t, d)) * gate * (one + out * (one - gate))
                    by_bias = by_bias + slope
                    for k in range(oldest, taps):
                        value = load(x, (b, first + step * (t + k + 1 - taps), d))
                        store(part, (k, 0), load(part, (k, 0)) + slope * value)
                store(slopes, (t % taps, 0), slope)
                s = t + 1 - taps  # all sums that saw x at step s are known now
                if s >= 0:
                    total = zeros(x)
                    for k in range(taps):
                        total = total + load(weight, (k, d)) * load(slopes, ((s + taps - 1 - k) % taps, 0))
                    store(dx, (b, first + step * s, d), total)
            store(dbias, (b, d), load(dbias, (b, d)) + by_bias)
            for k in range(taps):
                store(dweight, (b, k, d), load(dweight, (b, k, d)) + load(part, (k, 0)))


def _signatures(scalar: Any) -> tuple[Any, Any]:
    counter, flag, rows = numba.int64[::1], numba.boolean, scalar[:, :, :]
    line, lines, block = (numba.types.Array(scalar, axes, "C") for axes in (1, 2, 3))
    inputs = (counter, rows, lines, line)
    return numba.void(*inputs, flag, block), numba.void(*inputs, rows, flag, block, block, lines)


_SINGLE, _DOUBLE = (_signatures(scalar) for scalar in (numba.float32, numba.float64))
FORWARD = {torch.float32: Kernel(forward, _SINGLE[0]), torch.float64: Kernel(forward, _DOUBLE[0])}
BACKWARD = {torch.float32: Kernel(backward, _SINGLE[1]), torch.float64: Kernel(backward, _DOUBLE[1])}


def _arguments(x: Tensor, weight: Tensor, bias: Tensor | None, precision: torch.dtype) -> tuple[Tensor, ...]:
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    taps = whole_groups(weight.to(precision).T.contiguous())
    return whole_groups(x.to(precision)), taps, whole_groups(bias.to(precision).contiguous())


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool, precision: torch.dtype) -> Tensor:
    rows, taps, offset = _arguments(x, weight, bias, precision)
    y = room(*rows.shape, dtype=precision)
    FORWARD[precision](x.shape[0] * rows.shape[2] // WIDTH, rows, taps, offset, reverse, y)
    return cut(y, x.shape[2])


def gradients(
    dy: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool, precision: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Of x, weight and bias."""
    rows, taps, offset = _arguments(x, weight, bias, precision)
    batch, channels = x.shape[0], x.shape[2]
    dx = room(*rows.shape, dtype=precision)
    dweight = room(batch, *taps.shape, dtype=precision)
    dbias = room(batch, taps.shape[1], dtype=precision)
    given = (rows, taps, offset, whole_groups(dy.to(precision)), reverse)
    BACKWARD[precision](batch * rows.shape[2] // WIDTH, *given, dx, dweight, dbias)
    return cut(dx, channels), cut(dweight.sum(0), channels).T.contiguous(), cut(dbias.sum(0), channels)
