"""Any size and any aspect ratio, window by window."""

from __future__ import annotations

import pytest
import torch

from tests.fields.test_model import made, signal
from whence.errors import UserError
from whence.fields.enlarge import enlarge, size_of
from whence.fields.tiles import decode


@pytest.mark.parametrize("output", ["field", "render"])
@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ((1, 1), (1, 1)),
        ((1, 1), (5, 3)),
        ((16, 16), (16, 16)),
        ((7, 40), (21, 120)),
        ((50, 9), (3, 200)),
        ((33, 33), (1, 1)),
    ],
)
def test_any_size(output: str, given: tuple[int, int], asked: tuple[int, int]) -> None:
    picture = torch.rand(3, *given)
    found = enlarge(made(), picture, asked, output)  # type: ignore[arg-type]
    assert found.shape == (3, *asked)
    assert found.dtype == torch.uint8


def test_the_untrained_render_is_the_enlarged_picture_without_seams() -> None:
    """It starts as cubic interpolation, which knows nothing of windows."""
    from whence.fields.coordinates import grid
    from whence.fields.render import enlarged

    model, picture = made(), torch.rand(3, 37, 50)
    found = enlarge(model, picture, (91, 133), "render").float() / 255
    expected = enlarged(picture[None], grid((91, 133))[None])[0].mT.unflatten(-1, (91, 133)).clamp(0, 1)
    assert (found - expected).abs().max() < 0.003


def test_a_picture_in_one_window_is_as_decoded() -> None:
    model, x = made(size=(16, 16)), signal(rows=1)
    whole = decode(model, x, (32, 32), "field")[0].clamp(0, 1)
    small = enlarge(model, x[0, :, 4:12, 4:12], (16, 16), "field").float() / 255
    assert small.shape == (3, 16, 16)
    assert whole.shape == (3, 32, 32)


@pytest.mark.parametrize(
    ("text", "expected"), [("100", (50, 100)), ("640x480", (480, 640)), ("1", (1, 1)), ("8192", (4096, 8192))]
)
def test_sizes(text: str, expected: tuple[int, int]) -> None:
    assert size_of(text, 30, 60) == expected


@pytest.mark.parametrize("text", ["0", "-3", "x", "1x2x3", "big", "9000", "8193x1", "", "1.5"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match="size"):
        size_of(text, 30, 60)
