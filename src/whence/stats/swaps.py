"""Exact tests of who may be swapped with whom.

For one pair the null hypothesis is that swapping the two contenders' scores within any seed leaves the joint
distribution of all scores as it is. Several such hypotheses at once say that the contenders fall into blocks within
which scores may be permuted, in every seed anew. A pair is rejected only if every partition that keeps the two in one
block is rejected: closed testing, which bounds the chance of even one false claim whichever hypotheses are true.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

RANDOM = 9_999
"""Random permutations, besides the identity, where there are too many to go through."""
ENUMERATED = 2**14
LONGEST_EXACT_PAIR = 40
SLACK = 1e-9
"""Sums of equal scores differ in their last digits; what is this close, in units of the largest score, is a tie."""

Block = tuple[int, ...]
Partition = tuple[Block, ...]


def closed(scores: np.ndarray, stop_above: float = 1.0) -> dict[tuple[int, int], float]:
    """Adjusted p of every pair of columns of `scores`, shape (seeds, contenders).

    `stop_above` saves time where only decisions count: a pair whose p is known to exceed it is not refined further.
    """
    table = _Table(scores)
    found = dict.fromkeys(itertools.combinations(range(scores.shape[1]), 2), 0.0)
    for partition in partitions(scores.shape[1]):
        inside = [pair for block in partition for pair in itertools.combinations(block, 2)]
        if any(found[pair] <= stop_above for pair in inside):
            p = table.p(partition)
            for pair in inside:
                found[pair] = max(found[pair], p)
    return found


@functools.cache
def partitions(count: int) -> list[Partition]:
    """All partitions of `count` contenders but the one into singles, coarsest first; singles are left out."""

    def split(rest: Block) -> list[Partition]:
        if not rest:
            return [()]
        first, others = rest[0], rest[1:]
        return [
            ((first, *company), *partition)
            for size in range(len(rest))
            for company in itertools.combinations(others, size)
            for partition in split(tuple(other for other in others if other not in company))
        ]

    told = [tuple(block for block in partition if len(block) > 1) for partition in split(tuple(range(count)))]
    return sorted(filter(None, told), key=lambda partition: -sum(len(block) ** 2 for block in partition))


def alone(scores: np.ndarray) -> dict[tuple[int, int], float]:
    """Every pair by itself, without adjustment."""
    table = _Table(scores)
    return {pair: table.p((pair,)) for pair in itertools.combinations(range(scores.shape[1]), 2)}


def _flipped(differences: np.ndarray, slack: float) -> float:
    """Two-sided p over all 2^n sign flips, found by meeting in the middle."""
    moving = differences[np.abs(differences) > slack]
    reach = abs(moving.sum()) - slack
    if reach <= 0:
        return 1.0
    # Flipping all signs changes nothing, so the first keeps its sign.
    middle = (len(moving) + 1) // 2
    left = moving[0] + _sums(moving[1:middle])
    right = np.sort(_sums(moving[middle:]))
    above = len(right) - np.searchsorted(right, reach - left, side="left")
    below = np.searchsorted(right, -reach - left, side="right")
    return float((above.sum() + below.sum()) / (len(left) * len(right)))


def _sums(values: np.ndarray) -> np.ndarray:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate((sums + value, sums - value))
    return sums


class _Table:
    """The scores of one table, and what each block of contenders does under permutation, worked out when asked."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores
        self.seeds = len(scores)
        self.slack = SLACK * float(np.abs(scores).max(initial=0.0))
        self.sums = scores.sum(axis=0)
        self.known: dict[tuple[Block, bool], np.ndarray] = {}

    def p(self, partition: Partition) -> float:
        """p of "exchangeable within every block": how often the largest difference of two means is this large."""
        if len(partition) == 1 and len(partition[0]) == 2 and self.seeds <= LONGEST_EXACT_PAIR:
            a, b = partition[0]
            return _flipped(self.scores[:, a] - self.scores[:, b], self.slack)
        reach = max(float(np.ptp(self.sums[list(block)])) for block in partition) - self.slack
        exact = all(_enumerable(len(block), self.seeds) for block in partition)
        ranges = [self.ranges(block, exact) for block in partition]
        if exact:  # blocks are permuted independently
            return 1 - math.prod(float(np.mean(found < reach)) for found in ranges)
        return float(np.mean(functools.reduce(np.maximum, ranges) >= reach))

    def ranges(self, block: Block, exact: bool) -> np.ndarray:
        """Largest difference of two sums in the block, under each permutation. The first is the one observed."""
        if (block, exact) not in self.known:
            orders = np.array(list(itertools.permutations(range(len(block)))))
            shuffled = self.scores[:, block][:, orders]
            choices = _choices(len(block), self.seeds, None if exact else block[0])
            total = shuffled[0].take(choices[0], axis=0)
            for seed in range(1, self.seeds):
                total += shuffled[seed].take(choices[seed], axis=0)
            total = np.ascontiguousarray(total.T)  # far quicker to reduce than the short rows
            self.known[block, exact] = total.max(axis=0) - total.min(axis=0)
        return self.known[block, exact]


def _enumerable(size: int, seeds: int) -> bool:
    return math.factorial(size) ** (seeds - 1) <= ENUMERATED


@functools.lru_cache(maxsize=24)
def _choices(size: int, seeds: int, stream: int | None) -> np.ndarray:
    """For every seed, the number of the permutation drawn, shape (seeds, draws): all of them, or a random stream.

    The same relabelling in every seed changes no range, so the first seed is never permuted. Blocks of one partition
    need independent draws: their smallest members differ, and name the stream.
    """
    orders = math.factorial(size)
    if stream is None:
        every = np.indices((orders,) * (seeds - 1), dtype=np.intp).reshape(seeds - 1, orders ** (seeds - 1))
        return np.concatenate((np.zeros((1, every.shape[1]), np.intp), every))
    drawn = np.random.default_rng([size, seeds, stream]).integers(0, orders, (seeds, RANDOM + 1))
    drawn[:, 0] = 0
    return drawn
