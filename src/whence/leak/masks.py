"""Masks, and the distance of every token to the nearest visible one."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Pattern = Literal["random", "blocks", "tail"]
BLOCK = 4


def draw(generator: torch.Generator, rows: int, tokens: int, ratio: float, pattern: Pattern = "random") -> Tensor:
    """A mask, bool (rows, tokens), True where masked. Every row has the same number of masked tokens, at least one.

    random: tokens at random. blocks: blocks of four consecutive tokens. tail: the last tokens, as in forecasting.
    """
    count = max(1, round(ratio * tokens))
    if pattern == "tail":
        return (torch.arange(tokens) >= tokens - count).expand(rows, tokens).clone()
    key = torch.rand(rows, tokens, generator=generator)
    if pattern == "blocks":  # whole blocks are masked first, at a random offset of the grid of blocks
        blocks = -(-tokens // BLOCK) + 1
        shift = torch.randint(BLOCK, (rows, 1), generator=generator)
        key = torch.rand(rows, blocks, generator=generator).gather(1, (torch.arange(tokens) + shift) // BLOCK)
    order = key.argsort(dim=1, stable=True)
    return torch.zeros(rows, tokens, dtype=torch.bool).scatter_(1, order[:, :count], True)


def distances(visible: Tensor) -> tuple[Tensor, Tensor]:
    """Distance of every token to the nearest other visible token before and after it; 0 where there is none."""
    index = torch.arange(visible.shape[1], device=visible.device)
    before = _latest(visible, index)
    after = _latest(visible.flip(1), index).flip(1)
    return before, after


def _latest(visible: Tensor, index: Tensor) -> Tensor:
    latest = torch.where(visible, index, -1).cummax(1).values
    previous = torch.cat([torch.full_like(latest[:, :1], -1), latest[:, :-1]], 1)
    return torch.where(previous >= 0, index - previous, 0)
