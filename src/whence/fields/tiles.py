"""Values on whole grids, block by block, so that memory stays bounded and few position tokens matter to each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from whence.fields.coordinates import cell
from whence.fields.model import AT_ONCE, Encoded, FieldModel

Output = Literal["field", "render"]


def decode(
    model: FieldModel, x: Tensor, size: tuple[int, ...], output: Output, encoded: Encoded | None = None
) -> Tensor:
    """x: (rows, channels, *inputs) → (rows, channels, *size), values as they come, not clipped."""
    axes = [(torch.arange(count, device=x.device) + 0.5) / count for count in size]
    made = x.new_empty(len(x), model.channels, *size)
    for block, values in blocks(model, x, axes, cell(size, x.device), output, encoded):
        made[(..., *block)] = values
    return made


def blocks(
    model: FieldModel, x: Tensor, axes: Sequence[Tensor], width: Tensor, output: Output, encoded: Encoded | None = None
) -> Iterator[tuple[tuple[slice, ...], Tensor]]:
    """Of the grid that the coordinates on each axis span, piece by piece: where it is, and its values."""
    encoded = model.encode(x) if encoded is None else encoded
    features = model.features(x, encoded) if output == "render" else None
    side = max(1, math.floor(AT_ONCE ** (1 / len(axes))))
    spans = [[slice(begin, begin + side) for begin in range(0, len(axis), side)] for axis in axes]
    for block in itertools.product(*spans):
        pieces = [axis[span] for axis, span in zip(axes, block, strict=True)]
        at = torch.stack(torch.meshgrid(*pieces, indexing="ij"), -1).flatten(0, -2)[None]
        said = model.field(encoded, at, width) if features is None else model.render(x, features, at, width)
        yield block, said.mT.unflatten(-1, [len(piece) for piece in pieces])
