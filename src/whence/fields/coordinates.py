"""Where the numbers of a sampled signal are: coordinates in [0, 1]^k, each in the middle of its cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def line(count: int, device: torch.device | str | None = None) -> Tensor:
    return (torch.arange(count, device=device) + 0.5) / count


def grid(size: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """(points, k): the last axis runs fastest, as in memory."""
    axes = torch.meshgrid(*(line(count, device) for count in size), indexing="ij")
    return torch.stack(axes, -1).flatten(0, -2)


def cell(size: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """(k,): how wide the cell of one point is."""
    return 1 / torch.tensor([float(count) for count in size], device=device)


def scan_order(size: Sequence[int], *, serpentine: bool) -> Tensor:
    """(points,): indices into the grid in the order of reading. Serpentine turns round at every end: no step is far."""
    order = torch.arange(math.prod(size)).view(*size)
    if not serpentine:
        return order.flatten()

    def walk(part: Tensor, back: bool) -> Tensor:
        if part.ndim == 1:
            return part.flip(0) if back else part
        rows = part.flip(0) if back else part
        return torch.cat([walk(row, bool(index % 2) != back) for index, row in enumerate(rows)])

    return walk(order, False)
