"""Features as columns of numbers, for linear models and small perceptrons.

Every function maps answers to a matrix of shape (answers, features), made of the visible tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from whence.shortcuts.answers import Answers

Columns = Callable[[Answers], Tensor]
WINDOW = 8
"""First tokens, and last tokens before the current one: at most so many."""
REGIONS = 4
"""Parts of the visible tokens that are counted separately. Fewer in short sequences, which they would spell out."""
CHUNK = 2048


def window(answers: Answers) -> int:
    """Number of tokens before the current one that count as a shortcut: at most half of the problem, never all."""
    return max(0, min(WINDOW, answers.size // 2, answers.size - 2, answers.task.shortcut_window))


def one_hots(answers: Answers) -> Tensor:
    return one_hot_rows(answers.tokens, answers.blank)


def one_hot_rows(tokens: Tensor, symbols: int) -> Tensor:
    """bool (answers, tokens × symbols); all zero for blanks."""
    return (tokens[:, :, None] == torch.arange(symbols)).flatten(1)


def gram_counts(offsets: tuple[int, ...]) -> Columns:
    """How often each combination of symbols stands at these offsets from each other."""

    def counts(answers: Answers) -> Tensor:
        span, symbols = offsets[-1], answers.task.symbols
        kinds = symbols ** len(offsets)
        if answers.length <= span:
            return torch.zeros(len(answers), 1)
        code = torch.zeros_like(answers.tokens[:, span:])
        for offset in offsets:
            code = code * symbols + answers.tokens[:, offset : answers.length - span + offset]
        visible = answers.visible[:, span:]
        counted = torch.zeros(len(answers), kinds, dtype=torch.int16)
        return counted.scatter_add_(1, code.where(visible, 0), visible.short())

    return counts


symbol_counts, bigram_counts, trigram_counts, skip_pair_counts = map(gram_counts, ((0,), (0, 1), (0, 1, 2), (0, 2)))


def beside_last(distance: int) -> Columns:
    """How often each symbol stands `distance` before, and behind, an occurrence of the last symbol."""

    def counts(answers: Answers) -> Tensor:
        symbols = answers.task.symbols
        counted = torch.zeros(len(answers), 2 * symbols, dtype=torch.int16)
        if answers.length <= distance:
            return counted
        front, back = answers.tokens[:, :-distance], answers.tokens[:, distance:]
        both = answers.visible[:, distance:]
        before, behind = both & (back == answers.last), both & (front == answers.last)
        counted.scatter_add_(1, front.where(before, 0), before.short())
        return counted.scatter_add_(1, (back + symbols).where(behind, 0), behind.short())

    return counts


def centroids(answers: Answers) -> Tensor:
    """Sum of the positions of each symbol, in units of the length."""
    sums = torch.zeros(len(answers), answers.task.symbols + 1)
    places = (answers.positions / answers.length).expand_as(answers.tokens)
    return sums.scatter_add_(1, answers.tokens, places)[:, :-1]


def pairwise_order(answers: Answers) -> Tensor:
    """For each two symbols, how often one stands anywhere before the other, and which of the two orders is commoner."""

    def part(tokens: Tensor) -> Tensor:
        ones = one_hot(tokens, answers.blank + 1)[..., :-1].float()
        before = ((ones.cumsum(1) - ones).transpose(1, 2) @ ones).flatten(1)
        mirrored = before.view(-1, answers.blank, answers.blank).transpose(1, 2).flatten(1)
        return torch.cat([before, (before - mirrored).sign()], 1)

    return torch.cat([part(tokens) for tokens in answers.tokens.split(CHUNK)])


def regions(answers: Answers) -> int:
    return max(1, min(REGIONS, answers.length // 4))


def region(answers: Answers) -> Tensor:
    """(answers, tokens): which quarter of the visible tokens each belongs to."""
    count = regions(answers)
    return (count * answers.positions // (answers.place[:, None] + 1)).clamp(max=count - 1)


def region_counts(answers: Answers) -> Tensor:
    count = regions(answers)
    counted = torch.zeros(len(answers), (answers.blank + 1) * count, dtype=torch.int16)
    code = answers.tokens * count + region(answers)
    return counted.scatter_add_(1, code, torch.ones_like(code, dtype=torch.int16))[:, : answers.blank * count]


def last_symbol(answers: Answers) -> Tensor:
    """Where the last symbol occurred before: how often in each quarter and in all, and the sum of its positions."""
    earlier = earlier_occurrences(answers)
    quarters = [(earlier & (region(answers) == quarter)).sum(1) for quarter in range(regions(answers))]
    count = earlier.sum(1)
    centre = (earlier * answers.positions).sum(1)
    ahead = centre / (count.clamp(min=1) * (answers.place + 1))
    return torch.stack([*quarters, count, centre / answers.length, ahead, count > 0], 1)


def earlier_occurrences(answers: Answers) -> Tensor:
    """bool (answers, tokens): earlier occurrences of the last visible symbol."""
    return (answers.tokens == answers.last) & (answers.positions < answers.place[:, None])


def variety(answers: Answers) -> Tensor:
    """(answers, 3): how many symbols have occurred, and how often the two most frequent ones."""
    counts = symbol_counts(answers).sort(1, descending=True).values
    second = counts[:, 1] if counts.shape[1] > 1 else torch.zeros_like(counts[:, 0])
    return torch.stack([(counts > 0).sum(1), counts[:, 0], second], 1)


def first_tokens(answers: Answers) -> Tensor:
    return one_hot_rows(answers.tokens[:, : window(answers)], answers.blank)


def last_tokens(answers: Answers) -> Tensor:
    return one_hot_rows(answers.recent(window(answers) + 1), answers.blank)


def tokens_beyond_window(answers: Answers) -> Tensor:
    """The last tokens up to a length that expresses the skill; nothing where the window is that long anyway."""
    longest = min(WINDOW, answers.length - 1)
    return one_hot_rows(answers.recent(longest + 1 if longest > window(answers) else 0), answers.blank)


def both_ends(answers: Answers) -> Tensor:
    """The first two and the last two tokens together, and which of them are equal."""
    ends = torch.cat([answers.tokens[:, :2], answers.recent(min(2, window(answers) + 1))], 1)
    return torch.cat([one_hot_rows(ends, answers.blank), (ends[:, :, None] == ends[:, None]).flatten(1)], 1)


def position(answers: Answers) -> Tensor:
    """The answer's position: the number itself, and which of 64 bins. Nothing where all answers are at the end."""
    if answers.task.per != "token":
        return torch.empty(len(answers), 0)
    bins = answers.place * 64 // answers.length if answers.length > 64 else answers.place
    return torch.cat([answers.place[:, None] / answers.length, one_hot(bins, min(64, answers.length))], 1)
