"""How far a shortcut goes."""

from __future__ import annotations

import torch
from torch import Tensor


def best_guess(feature: Tensor, answers: Tensor, learn: Tensor) -> float:
    """The score of a predictor that knows `feature` and nothing else.

    For every value of the feature it gives the answer that was commonest with it where `learn` is true, and is scored
    on the rest: a feature with many values cannot look good by remembering.
    """
    _, value = feature.unique(return_inverse=True)
    kinds, answer = answers.unique(return_inverse=True)
    seen, times = (value * len(kinds) + answer)[learn].unique(return_counts=True)
    seen = seen[times.argsort(stable=True)]
    seen = seen[(seen // len(kinds)).argsort(stable=True)]  # by value, and for each value the commonest answer last
    of, commonest = seen // len(kinds), seen % len(kinds)
    last = of != torch.cat([of[1:], of.new_tensor([-1])])
    guess = torch.zeros(int(value.max()) + 1, dtype=torch.long)
    guess[of[last]] = commonest[last]
    return (guess[value] == answer)[~learn].double().mean().item()


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
