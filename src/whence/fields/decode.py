"""Decode whole grids block by block, and images of any size window by window, in bounded memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from whence.errors import UserError
from whence.fields.attention import Encoded
from whence.fields.baselines import cell, line, points, resize
from whence.fields.config import Output
from whence.fields.model import PIXELS_AT_ONCE, FieldModel

LARGEST = 8192
"""Pixels per side of a rendering."""
MARGIN = 4
"""Input pixels at the inner edges of a window that its neighbours decode; fewer in small windows."""


def decode(
    model: FieldModel, x: Tensor, size: tuple[int, ...], output: Output, encoded: Encoded | None = None
) -> Tensor:
    """x: (rows, channels, *inputs) → (rows, channels, *size), not clipped."""
    decoded = x.new_empty(len(x), model.channels, *size)
    axes = [line(count, x.device) for count in size]
    for block, values in decode_blocks(model, x, axes, cell(size, x.device), output, encoded):
        decoded[(..., *block)] = values
    return decoded


def decode_blocks(
    model: FieldModel, x: Tensor, axes: Sequence[Tensor], width: Tensor, output: Output, encoded: Encoded | None = None
) -> Iterator[tuple[tuple[slice, ...], Tensor]]:
    """Decode the grid spanned by the coordinates of each axis. Yields the index of each block and its values."""
    encoded = model.encode(x) if encoded is None else encoded
    decoder = model.rendering(x, encoded) if output == "render" else partial(model.field, encoded)
    side = max(1, math.floor(PIXELS_AT_ONCE ** (1 / len(axes))))
    spans = [[slice(begin, begin + side) for begin in range(0, len(axis), side)] for axis in axes]
    for block in itertools.product(*spans):
        pieces = [axis[span] for axis, span in zip(axes, block, strict=True)]
        values = decoder(points(pieces)[None], width)
        yield block, values.mT.unflatten(-1, [len(piece) for piece in pieces])


# --- images of any size


def parse_size(text: str, height: int, width: int) -> tuple[int, int]:
    """`1024`: the longer side, at the aspect ratio of the image; `640x480`: width and height. → (height, width)"""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(part.isdecimal() and len(part) < 9 and int(part) > 0 for part in parts):
        raise UserError(f"size: expected the length of the longer side (1024) or WIDTHxHEIGHT (640x480), got {text!r}.")
    numbers = [int(part) for part in parts]
    size = (numbers[1], numbers[0]) if len(numbers) == 2 else with_longer_side(numbers[0], height, width)
    if max(size) > LARGEST:
        raise UserError(f"size: expected at most {LARGEST}x{LARGEST} pixels, got {text!r}.")
    return size


def with_longer_side(pixels: int, height: int, width: int) -> tuple[int, int]:
    scale = pixels / max(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def shrunk(image: Tensor, size: tuple[int, int]) -> Tensor:
    """(channels, height, width), area-averaged along every axis that has more pixels than `size`."""
    return resize(image[None], tuple(map(min, image.shape[1:], size)), "area")[0]


def enlarge(
    model: FieldModel,
    image: Tensor,
    size: tuple[int, int],
    output: Output,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tensor:
    """image: (channels, height, width), 0 to 1 → bytes (channels, *size), in bounded additional memory.

    An image with more pixels than requested is area-averaged to the requested size first.
    """
    image = shrunk(image, size)
    rendered = torch.empty(image.shape[0], *size, dtype=torch.uint8)
    windows = list(itertools.product(*map(_windows, model.size, image.shape[1:], size)))
    with torch.no_grad():
        for done, window in enumerate(windows):
            on_progress(done, len(windows))
            _decode_window(model, image, rendered, window, output)
    on_progress(len(windows), len(windows))
    return rendered


Window = tuple[slice, int]
"""On one axis: a range of output pixels, and the first input pixel of the window that decodes them"""


def _windows(side: int, count: int, requested: int) -> list[Window]:
    begins = _begins(side, count)
    halfway = [(one + side + other) / 2 for one, other in itertools.pairwise(begins)]  # of the overlap
    edges = [0, *(math.ceil(edge * requested / count - 0.5) for edge in halfway), requested]
    return [(slice(a, b), begin) for (a, b), begin in zip(itertools.pairwise(edges), begins, strict=True) if b > a]


def _begins(side: int, count: int) -> list[int]:
    """First pixels of the windows on an axis. A window larger than the image is centred on it."""
    if count <= side:
        return [-((side - count) // 2)]
    core = side - 2 * min(MARGIN, side // 4)
    return [*range(0, count - side, core), count - side]


def _decode_window(
    model: FieldModel, image: Tensor, rendered: Tensor, window: Sequence[Window], output: Output
) -> None:
    """Decode one window into `rendered`. Edge pixels are repeated outside of the image."""
    axes, widths, x, here = [], [], image, rendered
    for axis, ((span, begin), side) in enumerate(zip(window, model.size, strict=True), 1):
        count = image.shape[axis]
        step = count / rendered.shape[axis]
        axes.append(((torch.arange(span.start, span.stop) + 0.5) * step - begin) / side)
        widths.append(step / side)
        x = x.index_select(axis, torch.arange(begin, begin + side).clamp(0, count - 1))
        here = here.narrow(axis, span.start, span.stop - span.start)
    for block, values in decode_blocks(model, x[None], axes, torch.tensor(widths), output):
        here[(..., *block)] = (values[0].clamp(0, 1) * 255).round().to(torch.uint8)
