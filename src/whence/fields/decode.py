"""Values on whole grids, block by block, and images of any size, window by window: memory stays bounded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from whence.errors import UserError
from whence.fields.baselines import cell, resize
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


LARGEST = 8192
"""Points per side of a rendering."""
MARGIN = 4
"""Input points at the inner sides of a window that its neighbours answer for; fewer in small windows."""


def size_of(text: str, height: int, width: int) -> tuple[int, int]:
    """`1024`: the longer side, the other follows; `640x480`: width and height. → (height, width)"""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(part.isdecimal() and len(part) < 9 and int(part) > 0 for part in parts):
        raise UserError(f"size: {text!r} is no size. Allowed: 1024 (the longer side), or 640x480.", field="size")
    if len(parts) == 2:
        found = int(parts[1]), int(parts[0])
    else:
        scale = int(parts[0]) / max(height, width)
        found = max(1, round(height * scale)), max(1, round(width * scale))
    if max(found) > LARGEST:
        raise UserError(f"size: {text!r} is too large. Allowed: up to {LARGEST}×{LARGEST}.", field="size")
    return found


def enlarge(
    model: FieldModel,
    picture: Tensor,
    size: tuple[int, int],
    output: Output,
    tell: Callable[[int, int], None] = lambda done, all_: None,
) -> Tensor:
    """picture: (channels, height, width), 0 to 1 → bytes (channels, *size). Memory beyond that stays bounded.

    Where fewer points are asked for than the picture has, it is averaged to that many first.
    """
    picture = resize(picture[None], tuple(min(a, b) for a, b in zip(picture.shape[1:], size, strict=True)), "area")[0]
    made = torch.empty(picture.shape[0], *size, dtype=torch.uint8)
    windows = list(_windows(model, picture, size))
    with torch.no_grad():
        for done, (rows, columns, place) in enumerate(windows):
            tell(done, len(windows))
            _window(model, picture, made, rows, columns, place, output)
    tell(len(windows), len(windows))
    return made


def _windows(
    model: FieldModel, picture: Tensor, size: tuple[int, int]
) -> Iterator[tuple[slice, slice, tuple[int, int]]]:
    """Output rows and columns, and where in the input the window begins that answers for them."""
    per_axis = []
    for side, count, asked in zip(model.size, picture.shape[1:], size, strict=True):
        begins = _begins(side, count)
        halfway = [(one + side + other) / 2 for one, other in itertools.pairwise(begins)]  # of what both can see
        edges = [0, *(math.ceil(edge * asked / count - 0.5) for edge in halfway), asked]
        spans = [(slice(a, b), begin) for (a, b), begin in zip(itertools.pairwise(edges), begins, strict=True)]
        per_axis.append([(span, begin) for span, begin in spans if span.stop > span.start])
    for rows, top in per_axis[0]:
        for columns, left in per_axis[1]:
            yield rows, columns, (top, left)


def _begins(side: int, count: int) -> list[int]:
    """Where windows begin on an axis: inside the picture, or around it where it is smaller than one."""
    if count <= side:
        return [-((side - count) // 2)]
    core = side - 2 * min(MARGIN, side // 4)
    return [*range(0, count - side, core), count - side]


def _window(
    model: FieldModel,
    picture: Tensor,
    made: Tensor,
    rows: slice,
    columns: slice,
    place: tuple[int, int],
    output: Output,
) -> None:
    """Written into `made`, block by block."""
    axes, widths = [], []
    for span, begin, side, count, asked in zip(
        (rows, columns), place, model.size, picture.shape[1:], made.shape[1:], strict=True
    ):
        step = count / asked
        axes.append(((torch.arange(span.start, span.stop) + 0.5) * step - begin) / side)
        widths.append(step / side)
    here = made[:, rows, columns]
    for block, values in blocks(model, _cut(picture, place, model.size)[None], axes, torch.tensor(widths), output):
        here[(..., *block)] = (values[0].clamp(0, 1) * 255).round().to(torch.uint8)


def _cut(picture: Tensor, place: tuple[int, int], side: tuple[int, ...]) -> Tensor:
    """A window that may reach over the edges, where the outermost points are repeated."""
    top, left = place
    height, width = picture.shape[1:]
    rows = torch.arange(top, top + side[0]).clamp(0, height - 1)
    columns = torch.arange(left, left + side[1]).clamp(0, width - 1)
    return picture[:, rows][:, :, columns]
