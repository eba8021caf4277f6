"""Features of every position of a sequence, for tasks that ask where something is.

Every function maps answers to integers of shape (answers, positions) by name. The predictor picks the position whose
integer marks the answer most often.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from whence.shortcuts.answers import Answers

PlaceKeys = Callable[[Answers], dict[str, Tensor]]
REACH = 2
"""Combinations of neighbours begin at most so many places before the position, or behind it."""


def symbol(answers: Answers) -> dict[str, Tensor]:
    return {"the symbol at the position": answers.tokens}


def relative_position(answers: Answers) -> dict[str, Tensor]:
    return {"the position": answers.positions.expand_as(answers.tokens)}


def neighbours(*offsets: int) -> PlaceKeys:
    """The symbols at these offsets together, seen from every position nearby."""

    def keys(answers: Answers) -> dict[str, Tensor]:
        names = {}
        for start in range(-REACH, REACH + 1):
            seats = [start + offset for offset in offsets]
            code = torch.zeros_like(answers.tokens)
            for seat in seats:
                code = code * (answers.blank + 1) + _shifted(answers, seat)
            names[f"the symbols at {', '.join(f'{seat:+d}' for seat in seats)} from the position"] = code
        return names

    return keys


def _shifted(answers: Answers, offset: int) -> Tensor:
    """At every position, the token `offset` places further on; the blank outside the sequence."""
    moved = torch.full_like(answers.tokens, answers.blank)
    if abs(offset) >= answers.length:
        return moved
    if offset > 0:
        moved[:, :-offset] = answers.tokens[:, offset:]
    elif offset < 0:
        moved[:, -offset:] = answers.tokens[:, :offset]
    else:
        moved = answers.tokens
    return moved


def repeats(answers: Answers) -> dict[str, Tensor]:
    """Occurrences of the position's symbol elsewhere in the sequence."""
    counts = torch.zeros(len(answers), answers.blank + 1, dtype=torch.long)
    total = counts.scatter_add_(1, answers.tokens, torch.ones_like(answers.tokens)).gather(1, answers.tokens)
    earlier = torch.empty_like(answers.tokens)
    running = torch.zeros(len(answers), answers.blank + 1, dtype=torch.long)
    for place in range(answers.length):
        token = answers.tokens[:, place : place + 1]
        earlier[:, place : place + 1] = running.gather(1, token)
        running.scatter_add_(1, token, torch.ones_like(token))
    both = earlier * (answers.length + 1) + total
    return {
        "how often the symbol at the position occurs": total,
        "how often the symbol at the position occurred before and in all": both,
        "the symbol at the position and its occurrences": answers.tokens * (answers.length + 1) ** 2 + both,
    }
