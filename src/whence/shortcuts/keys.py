"""Features as integers by name, for lookup tables, made of the visible tokens alone.

Every function maps answers to integers of shape (answers,). Those whose name begins with `place` serve tasks that ask
where something is: they map answers to integers of shape (answers, positions), and the predictor picks the position
whose integer marks the answer most often.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from whence.shortcuts.answers import Answers
from whence.shortcuts.columns import (
    beside_last,
    centroids,
    earlier_occurrences,
    region,
    regions,
    symbol_counts,
    variety,
    window,
)
from whence.tasks._shortcuts import count_before, counts_of

Keys = Callable[[Answers], dict[str, Tensor]]
MANY_SYMBOLS = 32
"""With more symbols there are no lookup tables per symbol."""
TABLE = 4096
"""Largest number of combinations of tokens that a lookup table is made for."""
RADIX = 512
"""Features that are joined lie below this; it must not depend on the sample, or two samples would not agree."""
REACH = 2
"""Combinations of neighbours begin at most so many places before the position, or behind it."""


def joint(*features: Tensor) -> Tensor:
    """One integer for each combination of the features' values."""
    code = torch.zeros_like(features[0], dtype=torch.long)
    for feature in features:
        code = code * RADIX + feature
    return code


def no_keys(answers: Answers) -> dict[str, Tensor]:
    return {"the most frequent answer": torch.zeros(len(answers), dtype=torch.long)}


def position_keys(answers: Answers) -> dict[str, Tensor]:
    names = {"the position": answers.place}
    if answers.task.feeds_answers:
        names["the position and the previous answer"] = joint(answers.place, answers.last[:, 0])
    return names


def _per_symbol(name: str, values: Tensor) -> dict[str, Tensor]:
    if values.shape[1] > MANY_SYMBOLS:
        return {}
    return {name.format(symbol): column.round().long() for symbol, column in enumerate(values.unbind(1))}


def count_keys(answers: Answers) -> dict[str, Tensor]:
    counts = symbol_counts(answers)
    return {"the most frequent symbol": counts.argmax(1), **_per_symbol("how often symbol {} occurs", counts)}


def centroid_keys(answers: Answers) -> dict[str, Tensor]:
    return _per_symbol("the sum of the positions of symbol {}", centroids(answers) * answers.length)


def beside_last_keys(distance: int) -> Keys:
    where = "next to" if distance == 1 else f"{distance} places from"

    def keys(answers: Answers) -> dict[str, Tensor]:
        counts = beside_last(distance)(answers)
        sides = zip(("before", "after"), counts.split(answers.task.symbols, 1), strict=True)
        return {f"the most frequent symbol {where} the last one, {side} it": of.argmax(1) for side, of in sides}

    return keys


def last_symbol_keys(answers: Answers) -> dict[str, Tensor]:
    earlier, quarter = earlier_occurrences(answers), region(answers)
    count, first = earlier.sum(1), (earlier & (quarter == 0)).sum(1)
    half = (earlier & (quarter < (regions(answers) + 1) // 2)).sum(1)
    lately = {
        f"how often the last symbol occurred in the {near} tokens before": (
            earlier & (answers.positions >= answers.place[:, None] - near)
        ).sum(1)
        for near in (2, 4, 8, 16)
        if near < answers.length - 1
    }
    return lately | {
        "how often the last symbol occurred": count,
        "the last symbol and how often it occurred": joint(answers.last[:, 0], count),
        "how often the last symbol occurred in the first quarter": first,
        "how often the last symbol occurred in the first quarter and in all": joint(first, count),
        "how often the last symbol occurred in either half": joint(half, count),
        "the sum of the positions of the last symbol": (earlier * answers.positions).sum(1),
    }


def variety_keys(answers: Answers) -> dict[str, Tensor]:
    distinct, highest, second = variety(answers).unbind(1)
    return {
        "the number of distinct symbols so far": distinct,
        "the highest count so far": highest,
        "the number of distinct symbols and the highest count so far": joint(distinct, highest),
        "the number of distinct symbols and the two highest counts so far": joint(distinct, highest, second),
    }


def first_token_keys(answers: Answers) -> dict[str, Tensor]:
    return _joint_tokens("first", answers.tokens[:, : window(answers)], answers.task.symbols)


def last_token_keys(answers: Answers) -> dict[str, Tensor]:
    return _joint_tokens("last", answers.recent(window(answers) + 1), answers.task.symbols)


def _joint_tokens(which: str, tokens: Tensor, symbols: int) -> dict[str, Tensor]:
    """Single tokens, and as many together as a table can hold."""
    names = {f"the {which} token": tokens[:, 0]} if tokens.shape[1] else {}
    for count in range(2, tokens.shape[1] + 1):
        names[f"token {count} of the {which} ones"] = tokens[:, count - 1]
        if (symbols + 1) ** count <= TABLE:
            names[f"the {which} {count} tokens"] = joint(*tokens[:, :count].unbind(1))
    return names


def window_sum_keys(answers: Answers) -> dict[str, Tensor]:
    base, names = max(2, answers.task.outputs), {}
    for skip, which in ((0, "last {} tokens"), (1, "{} tokens before this one")):
        tokens = answers.recent(window(answers) + 1 - skip, skip)
        sums = tokens.where(tokens != answers.blank, 0).cumsum(1) % base
        for count, total in enumerate(sums.unbind(1), 1):
            names[f"the sum of the {which.format(count)}, modulo {base}"] = total
    return names


def suffix_keys(answers: Answers) -> dict[str, Tensor]:
    """For tasks with answers among the inputs: continue the longest suffix that occurred before, read either way."""
    if not answers.task.feeds_answers:
        return {}
    return {
        f"continuation of the longest suffix of at most {longest}, read {way}": _continued(answers, longest, step)
        for longest in (1, 2, 3)
        for way, step in (("forwards", 1), ("backwards", -1))
    }


def _continued(answers: Answers, longest: int, step: int) -> Tensor:
    """What stands behind (step = −1: before) the latest earlier match of the last tokens; the blank without a match."""
    continuation = torch.full((len(answers),), answers.blank)
    matches = torch.ones_like(answers.tokens, dtype=torch.bool)
    suffix = answers.recent(longest)
    follows = _shifted(answers.tokens, step, answers.blank)
    for depth in range(min(longest, answers.length - 1)):
        matches = matches & (_shifted(answers.tokens, -step * depth, -1) == suffix[:, depth : depth + 1])
        ends = answers.positions + (depth if step < 0 else 0)
        usable = matches & (ends < answers.place[:, None]) & (follows < answers.task.outputs)
        where = torch.where(usable, answers.positions, -1).amax(1)
        continuation = torch.where(where >= 0, follows.gather(1, where.clamp(min=0)[:, None])[:, 0], continuation)
    return continuation


def declared_keys(answers: Answers) -> dict[str, Tensor]:
    return answers.declared


def place_symbol(answers: Answers) -> dict[str, Tensor]:
    return {"the symbol at the position": answers.tokens}


def place_position(answers: Answers) -> dict[str, Tensor]:
    return {"the position": answers.positions.expand_as(answers.tokens)}


def place_neighbours(*offsets: int) -> Keys:
    """The symbols at these offsets together, seen from every position nearby."""

    def keys(answers: Answers) -> dict[str, Tensor]:
        names = {}
        for start in range(-REACH, REACH + 1):
            places = [start + offset for offset in offsets]
            code = torch.zeros_like(answers.tokens)
            for place in places:
                code = code * (answers.blank + 1) + _shifted(answers.tokens, place, answers.blank)
            names[f"the symbols at {', '.join(f'{place:+d}' for place in places)} from the position"] = code
        return names

    return keys


def _shifted(tokens: Tensor, offset: int, outside: int) -> Tensor:
    """At every position, the token `offset` places further on."""
    offset = max(-tokens.shape[1], min(tokens.shape[1], offset))
    return pad(tokens, (-offset, offset), value=outside)


def place_repeats(answers: Answers) -> dict[str, Tensor]:
    """Occurrences of the position's symbol elsewhere in the sequence."""
    total = counts_of(answers.tokens, answers.blank + 1).gather(1, answers.tokens)
    both = count_before(answers.tokens) * (answers.length + 1) + total
    return {
        "how often the symbol at the position occurs": total,
        "how often the symbol at the position occurred before and in all": both,
        "the symbol at the position and its occurrences": answers.tokens * (answers.length + 1) ** 2 + both,
    }
