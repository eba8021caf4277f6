# pyright: reportCallIssue=false
# (it takes the intrinsics of simd.py for plain functions.)
"""The k largest of each row, by a bound that is nearly sharp.

The row is cut into many more blocks than k, and the k-th largest of their maxima is a lower bound: k numbers at least
reach it. Few others do, so one more pass leaves little more than k candidates to choose from exactly. Both passes go
16 numbers at a time.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from whence.kernels.launch import Kernel
from whence.kernels.simd import WIDTH, larger, load, reaches, spread, store, take_number

ROWS = 8  # in one job
BLOCKS = 8  # for each number wanted: then about k/16 candidates are too many


@numba.njit(nogil=True)
def keep_largest(values, names, count, k):
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
    height = max(1, WIDTH * vectors // (BLOCKS * k))  # of a block, in vectors; a block is one lane of them
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
                keep_largest(maxima, names, blocks, k)
                bound[0] = maxima[k - 1]
            found, least = 0, bound[0]
            for start in range(0, size, WIDTH):
                if start + WIDTH > size or reaches(load(scores, (row, start)), spread(bound, (0,))):
                    for place in range(start, min(start + WIDTH, size)):
                        value = scores[row, place]
                        values[found] = np.inf if value != value else value
                        names[found] = place
                        found += 0 if value < least else 1
            keep_largest(values, names, found, k)
            for j in range(k):
                out[row, j] = names[j]


SELECT = Kernel(select, numba.void(numba.int64[::1], numba.float32[:, ::1], numba.int64, numba.int64[:, ::1]))


def top_k(scores: Tensor, k: int) -> Tensor:
    out = torch.empty((len(scores), k), dtype=torch.int64)
    SELECT(-(-len(scores) // ROWS), scores.contiguous(), k, out)
    return out
