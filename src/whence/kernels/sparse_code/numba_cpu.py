# pyright: reportCallIssue=false
# (it takes the intrinsics of simd.py for plain functions.)
"""Two products make all of a sparse code: weighted sums of rows, and dot products of pairs of rows.

Sums of features' rows decode, and sums of samples' rows, listed by feature, are the gradients of both weights. Dot
products are the code's values, and their gradients. A row is gathered whole, so that its memory comes in one stream,
four rows at a time. Each result is written by one job, in the order of its list: the same bits for any number of
threads. Widths are whole groups of 16.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from whence.kernels.launch import Kernel
from whence.kernels.layout import cut, whole_groups
from whence.kernels.memory import room
from whence.kernels.simd import WIDTH, load, spread, store, store_totals, take_number, zeros

BLOCK = 8  # rows of the result in one job


def sums(counter, starts, sources, factors, rows, out):
    """out[r] = Σ factors[p]·rows[sources[p]] over starts[r] ≤ p < starts[r + 1]."""
    count, width = out.shape
    while True:
        begin = take_number(counter) * BLOCK
        if begin >= count:
            break
        for r in range(begin, min(begin + BLOCK, count)):
            p, end = starts[r], starts[r + 1]
            for c in range(0, width, WIDTH):
                store(out, (r, c), zeros(out))
            while p + 4 <= end:
                a, b, c, d = sources[p], sources[p + 1], sources[p + 2], sources[p + 3]
                of_a, of_b = spread(factors, (p,)), spread(factors, (p + 1,))
                of_c, of_d = spread(factors, (p + 2,)), spread(factors, (p + 3,))
                for w in range(0, width, WIDTH):
                    total = load(out, (r, w)) + of_a * load(rows, (a, w)) + of_b * load(rows, (b, w))
                    store(out, (r, w), total + of_c * load(rows, (c, w)) + of_d * load(rows, (d, w)))
                p += 4
            while p < end:
                for w in range(0, width, WIDTH):
                    store(out, (r, w), load(out, (r, w)) + spread(factors, (p,)) * load(rows, (sources[p], w)))
                p += 1


def dots(counter, x, rows, indices, out):
    """out[i, j] = x[i]·rows[indices[i, j]]."""
    count, k = indices.shape
    parts, found = np.empty((4, WIDTH), x.dtype), np.empty(4, x.dtype)
    while True:
        begin = take_number(counter) * BLOCK
        if begin >= count:
            break
        for i in range(begin, min(begin + BLOCK, count)):
            for j in range(0, k, 4):
                last = k - 1
                a, b = indices[i, j], indices[i, min(j + 1, last)]
                c, d = indices[i, min(j + 2, last)], indices[i, min(j + 3, last)]
                with_a, with_b, with_c, with_d = zeros(x), zeros(x), zeros(x), zeros(x)
                for w in range(0, x.shape[1], WIDTH):
                    mine = load(x, (i, w))
                    with_a = with_a + mine * load(rows, (a, w))
                    with_b = with_b + mine * load(rows, (b, w))
                    with_c = with_c + mine * load(rows, (c, w))
                    with_d = with_d + mine * load(rows, (d, w))
                store(parts, (0, 0), with_a)
                store(parts, (1, 0), with_b)
                store(parts, (2, 0), with_c)
                store(parts, (3, 0), with_d)
                store_totals(parts, (0, 0), found, (0,))
                for one in range(j, min(j + 4, k)):
                    out[i, one] = found[one - j]


def transpose(counter, indices, starts, sources, places):
    """Entries listed by feature, in the order of their samples: a counting sort, by one thread."""
    if take_number(counter) > 0:
        return
    starts[:] = 0
    count, k = indices.shape
    for i in range(count):
        for j in range(k):
            starts[indices[i, j] + 1] += 1
    for feature in range(1, starts.shape[0]):
        starts[feature] += starts[feature - 1]
    following = starts[:-1].copy()
    for i in range(count):
        for j in range(k):
            place = following[indices[i, j]]
            following[indices[i, j]] = place + 1
            sources[place] = i
            places[place] = i * k + j


_counter, _rows = numba.int64[::1], numba.float32[:, ::1]
_list, _lists = numba.int64[::1], numba.int64[:, ::1]
SUMS = Kernel(sums, numba.void(_counter, _list, _list, numba.float32[::1], _rows, _rows))
DOTS = Kernel(dots, numba.void(_counter, _rows, _rows, _lists, _rows))
TRANSPOSE = Kernel(transpose, numba.void(_counter, _lists, _list, _list, _list))


def weighted_sums(starts: Tensor, sources: Tensor, factors: Tensor, rows: Tensor) -> Tensor:
    padded = whole_groups(rows).contiguous()
    out = room(len(starts) - 1, padded.shape[1], dtype=rows.dtype)
    SUMS(-(-len(out) // BLOCK), starts, sources, factors.contiguous(), padded, out)
    return cut(out, rows.shape[1])


def dot_products(x: Tensor, rows: Tensor, indices: Tensor) -> Tensor:
    out = x.new_empty(indices.shape)
    padded = (whole_groups(x).contiguous(), whole_groups(rows).contiguous())
    DOTS(-(-len(out) // BLOCK), *padded, indices.contiguous(), out)
    return out


def by_feature(indices: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where each feature's list starts, and for each entry of the lists its sample and its place among all indices."""
    starts, sources, places = (torch.empty(n, dtype=torch.int64) for n in (size + 1, *2 * [indices.numel()]))
    TRANSPOSE(1, indices.contiguous(), starts, sources, places)
    return starts, sources, places
