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
    counts = torch.zeros(int(value.max()) + 1, len(kinds), dtype=torch.long)
    counts.index_put_((value[learn], answer[learn]), torch.ones((), dtype=torch.long), accumulate=True)
    guess = counts.argmax(1)[value]
    return (guess == answer)[~learn].double().mean().item()


def count_before(inputs: Tensor, window: int | None = None) -> Tensor:
    """At every position, how often its symbol occurred before, within the last `window` places or at all."""
    length = inputs.shape[1]
    if window is not None:
        counts = torch.zeros_like(inputs)
        for back in range(1, min(window, length - 1) + 1):
            counts[:, back:] += inputs[:, back:] == inputs[:, :-back]
        return counts
    ones = torch.nn.functional.one_hot(inputs)
    return ones.cumsum(1).gather(2, inputs[..., None]).squeeze(-1) - 1


def commonest_so_far(inputs: Tensor, symbols: int) -> Tensor:
    """At every position, the commonest of the symbols before it."""
    guesses = torch.empty_like(inputs)
    for part in range(0, len(inputs), 256):  # in pieces: the counts need symbols × length numbers per sequence
        ones = torch.nn.functional.one_hot(inputs[part : part + 256], symbols)
        guesses[part : part + 256] = (ones.cumsum(1) - ones).argmax(-1)
    return guesses
