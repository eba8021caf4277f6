"""Shortcuts through what stands in a sequence, not where."""

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
    """At every place of the answer, the letter that the answer so far lacks most often, going by the question's count.

    An answer of several rounds uses the question up once per round.
    """
    guesses, left = torch.empty_like(answer), counts_of(question, kinds)
    for place, given in enumerate(answer.split(1, 1)):
        if place and place % question.shape[1] == 0:
            left = counts_of(question, kinds)
        guesses[:, place] = left.argmax(1)
        left.scatter_add_(1, given, -torch.ones_like(given))
    return guesses


def latest(keys: Tensor, values: Tensor, asked: Tensor, otherwise: Tensor) -> Tensor:
    """For everything asked, the value at the latest place where that key stands, or `otherwise` where none does."""
    found = otherwise
    for key, value in zip(keys.unbind(1), values.unbind(1), strict=True):
        found = torch.where(key[:, None] == asked, value[:, None], found)
    return found


def continued(shown: Tensor, inputs: Tensor, symbols: int) -> tuple[Tensor, Tensor]:
    """At every input, what came next in `shown` after the latest such letter, and after the latest such two letters."""
    one = latest(shown[:, :-1], shown[:, 1:], inputs, torch.full_like(inputs, symbols))
    pairs = shown[:, :-2] * symbols + shown[:, 1:-1]
    return one, latest(pairs, shown[:, 2:], inputs.roll(1, 1) * symbols + inputs, one)
