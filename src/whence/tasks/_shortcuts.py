"""Shortcuts that tasks declare: functions of the content and of counts, not of positions."""

from __future__ import annotations

import torch
from torch import Tensor


def counts_of(letters: Tensor, kinds: int) -> Tensor:
    """How often each kind occurs in each row, shape (batch, kinds)."""
    return torch.zeros(len(letters), kinds, dtype=torch.long).scatter_add_(1, letters, torch.ones_like(letters))


def commonest(letters: Tensor, kinds: int) -> Tensor:
    """The commonest letter of each row, shape (batch, 1)."""
    return counts_of(letters, kinds).argmax(1, keepdim=True)


def commonest_left(question: Tensor, answer: Tensor, kinds: int) -> Tensor:
    """At every place of the answer, the letter of the question that the answer so far lacks most often.

    An answer of several rounds uses the letters up once per round.
    """
    rows, guesses = torch.arange(len(question)), torch.empty_like(answer)
    counts = counts_of(question, kinds)
    left = counts.clone()
    for place in range(answer.shape[1]):
        if place % question.shape[1] == 0:
            left = counts.clone()
        guesses[:, place] = left.argmax(1)
        left[rows, answer[:, place]] -= 1
    return guesses


def following_left(shown: Tensor, answer: Tensor, kinds: int) -> Tensor:
    """At every place of the answer, what most often follows the previous letter in `shown`, without pairs already said.

    Where nothing came before, the first letter shown. An answer of several rounds uses the pairs up once per round.
    """
    rows, guesses = torch.arange(len(shown)), torch.empty_like(answer)
    pairs = counts_of(shown[:, :-1] * kinds + shown[:, 1:], kinds * kinds)
    left = pairs.clone()
    guesses[:, 0] = shown[:, 0]
    for place in range(1, answer.shape[1]):
        if (place - 1) % (shown.shape[1] - 1) == 0:
            left = pairs.clone()
        before = answer[:, place - 1]
        guesses[:, place] = left.view(-1, kinds, kinds)[rows, before].argmax(1)
        left[rows, before * kinds + answer[:, place]] -= 1
    return guesses


def continued(shown: Tensor, inputs: Tensor) -> Tensor:
    """At every input, what came next in `shown` after the latest such letter; −1 after a letter that is not there."""
    guesses = torch.full_like(inputs, -1)
    for letter, following in zip(shown[:, :-1].unbind(1), shown[:, 1:].unbind(1), strict=True):
        guesses = torch.where(letter[:, None] == inputs, following[:, None], guesses)
    return guesses


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
