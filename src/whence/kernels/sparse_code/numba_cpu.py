"""The kernels of a sparse code: its two products, and which features it consists of.

Two products make all of it: weighted sums of rows, and dot products of pairs of rows.

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
from whence.kernels.memory import room
from whence.kernels.simd import (
    WIDTH,
    cut,
    larger,
    load,
    reaches,
    spread,
    store,
    store_totals,
    take_number,
    whole_groups,
    zeros,
)

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
    parts, totals = np.empty((4, WIDTH), x.dtype), np.empty(4, x.dtype)
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
                store_totals(parts, (0, 0), totals, (0,))
                for one in range(j, min(j + 4, k)):
                    out[i, one] = totals[one - j]


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


# --- The k largest of each row, by a bound that is nearly sharp.
#
# The row is cut into many more blocks than k, and the k-th largest of their maxima is a lower bound: k numbers at least
# reach it. Few others do, so one more pass leaves little more than k candidates to choose from exactly. Both passes go
# 16 numbers at a time.

ROWS = 8  # in one job
MAXIMA = 8  # blocks for each number wanted: then about k/16 candidates are too many


@numba.njit(nogil=True)
def select_largest(values, names, count, k):
    """Bring the k largest of `count` values, with their names, to the front (quickselect, kind to equal values)."""
    low, high = 0, count - 1
    while low < high:
        middle = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] > middle:
                left += 1
            while values[right] < middle:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                names[left], names[right] = names[right], names[left]
                left += 1
                right -= 1
        if k - 1 <= right:
            high = right
        elif k - 1 >= left:
            low = left
        else:
            break


def select(counter, scores, k, out):
    """What is not a number counts as infinite."""
    count, size = scores.shape
    vectors = size // WIDTH
    height = max(1, WIDTH * vectors // (MAXIMA * k))  # of a block, in vectors; a block is one lane of them
    blocks = -(-vectors // height) * WIDTH
    maxima, values = np.empty(blocks, scores.dtype), np.empty(size, scores.dtype)
    names = np.empty(max(size, blocks), np.int64)
    bound = np.empty(1, scores.dtype)
    lowest = np.full(1, -np.inf, scores.dtype)
    while True:
        begin = take_number(counter) * ROWS
        if begin >= count:
            break
        for row in range(begin, min(begin + ROWS, count)):
            bound[0] = -np.inf
            if blocks > k:
                for block in range(blocks // WIDTH):
                    highest = spread(lowest, (0,))
                    for vector in range(block * height, min((block + 1) * height, vectors)):
                        highest = larger(load(scores, (row, vector * WIDTH)), highest)
                    store(maxima, (block * WIDTH,), highest)
                select_largest(maxima, names, blocks, k)
                bound[0] = maxima[k - 1]
            candidates, least = 0, bound[0]
            for start in range(0, size, WIDTH):
                if start + WIDTH > size or reaches(load(scores, (row, start)), spread(bound, (0,))):
                    for place in range(start, min(start + WIDTH, size)):
                        value = scores[row, place]
                        values[candidates] = np.inf if value != value else value
                        names[candidates] = place
                        candidates += 0 if value < least else 1
            select_largest(values, names, candidates, k)
            for j in range(k):
                out[row, j] = names[j]


SELECT = Kernel(select, numba.void(numba.int64[::1], numba.float32[:, ::1], numba.int64, numba.int64[:, ::1]))


def top_k(scores: Tensor, k: int) -> Tensor:
    out = torch.empty((len(scores), k), dtype=torch.int64)
    SELECT(-(-len(scores) // ROWS), scores.contiguous(), k, out)
    return out
