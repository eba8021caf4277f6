"""How often symbols occurred before, for the shortcuts that tasks declare."""

from __future__ import annotations

import torch
from torch import Tensor


def count_before(inputs: Tensor, window: int | None = None) -> Tensor:
    """At every position, how often its symbol occurred before, within the last `window` places or at all."""
    length = inputs.shape[1]
    if window is not None:
        counts = torch.zeros_like(inputs)
        for back in range(1, min(window, length - 1) + 1):
            counts[:, back:] += inputs[:, back:] == inputs[:, :-back]
        return counts
    counts = torch.empty_like(inputs)
    for part in range(0, len(inputs), 256):  # in pieces: the counts need symbols × length numbers per sequence
        some = inputs[part : part + 256]
        ones = torch.nn.functional.one_hot(some)
        counts[part : part + 256] = ones.cumsum(1).gather(2, some[..., None]).squeeze(-1) - 1
    return counts


def count_of_last(inputs: Tensor, window: int | None = None) -> Tensor:
    """How often the last symbol of each row occurred before, within the last `window` places or at all."""
    first = 0 if window is None else max(0, inputs.shape[1] - 1 - window)
    return (inputs[:, first:-1] == inputs[:, -1:]).sum(1)


def commonest_so_far(inputs: Tensor, symbols: int, window: int | None = None) -> Tensor:
    """At every position, the commonest of the symbols before it, or of the last `window` of them."""
    guesses = torch.empty_like(inputs)
    for part in range(0, len(inputs), 256):
        ones = torch.nn.functional.one_hot(inputs[part : part + 256], symbols)
        before = ones.cumsum(1) - ones
        if window is not None:
            before[:, window:] -= before[:, :-window].clone()
        guesses[part : part + 256] = before.argmax(-1)
    return guesses
