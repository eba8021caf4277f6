"""Values on whole grids, a few points at a time, so that memory stays bounded."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from whence.fields.coordinates import cell, grid
from whence.fields.model import Encoded, FieldModel

Output = Literal["field", "render"]
AT_ONCE = 2048
"""Points that are asked for together: at 64 position tokens, some 30 MB of weights."""


def decode(
    model: FieldModel, x: Tensor, size: tuple[int, ...], output: Output, encoded: Encoded | None = None
) -> Tensor:
    """x: (rows, channels, *inputs) → (rows, channels, *size), values as they come, not clipped."""
    encoded = model.encode(x) if encoded is None else encoded
    features = model.features(x, encoded) if output == "render" else None
    width = cell(size, x.device)
    parts = []
    for at in grid(size, x.device).split(AT_ONCE):
        if features is not None:
            parts.append(model.render(x, features, at[None], width))
        else:
            parts.append(model.field(encoded, at[None], width))
    return torch.cat(parts, 1).mT.unflatten(-1, size)
