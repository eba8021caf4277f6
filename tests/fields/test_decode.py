"""Any size and any aspect ratio, window by window."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.fields.test_model import made, signal
from whence.errors import UserError
from whence.fields.baselines import cell, grid
from whence.fields.decode import Output, _begins, decode, enlarge, parse_size


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
        ((3, 30_000), (1, 90)),
    ],
)
def test_any_size(output: Output, given: tuple[int, int], asked: tuple[int, int]) -> None:
    picture = torch.rand(3, *given)
    rendered = enlarge(made(), picture, asked, output)
    assert rendered.shape == (3, *asked)
    assert rendered.dtype == torch.uint8


def test_the_untrained_render_is_the_enlarged_picture_without_seams() -> None:
    """It starts as bicubic interpolation, which knows nothing of windows."""
    from whence.fields.render import enlarged

    model, picture = made(), torch.rand(3, 37, 50)
    rendered = enlarge(model, picture, (91, 133), "render").float() / 255
    expected = enlarged(picture[None], grid((91, 133))[None])[0].mT.unflatten(-1, (91, 133)).clamp(0, 1)
    assert (rendered - expected).abs().max() < 0.003


@pytest.mark.parametrize("output", ["field", "render"])
def test_a_picture_in_one_window_is_as_decoded(output: Output) -> None:
    """8×8 points with the outermost repeated around them are the one window there is."""
    model, x = made(size=(16, 16)), signal(rows=1)
    small = x[0, :, 4:12, 4:12]
    around = torch.nn.functional.pad(small[None], (4, 4, 4, 4), mode="replicate")
    whole = decode(model, around, (32, 32), output)[0].clamp(0, 1)
    rendered = enlarge(model, small, (16, 16), output).float() / 255
    assert (rendered - whole[:, 8:24, 8:24]).abs().max() <= 0.51 / 255


@pytest.mark.parametrize("side", [8, 9, 12, 16])
def test_a_picture_of_the_models_own_size_is_one_window(side: int) -> None:
    """What is measured on crops is what is rendered."""
    model = made(size=(side, side), patch=1)
    x = signal((side, side), rows=1)
    rendered = enlarge(model, x[0], (2 * side, 2 * side), "field").float() / 255
    assert (rendered - decode(model, x, (2 * side, 2 * side), "field")[0].clamp(0, 1)).abs().max() <= 0.51 / 255


@pytest.mark.parametrize("count", [17, 30, 40, 41, 100])
def test_windows_lie_inside_and_leave_nothing_out(count: int) -> None:
    begins = _begins(16, count)
    assert begins[0] == 0
    assert begins[-1] == count - 16
    assert all(0 < b - a <= 16 - 2 * 4 for a, b in itertools.pairwise(begins))


def test_blocks_and_negligible_tokens_change_nothing() -> None:
    """Decoding asks block by block and leaves out tokens that no pixel attends to; all at once does not."""
    model, x = made(lps=49), signal(rows=2)
    torch.nn.init.constant_(model.hyponet.nearness.sharpness, 3.0)  # sharp: most have no weight
    size = (96, 70)
    with torch.enable_grad():
        expected = model.field(model.encode(x), grid(size)[None], cell(size)).mT.unflatten(-1, size).detach()
    with torch.no_grad():
        rendered = decode(model, x, size, "field")
    torch.testing.assert_close(rendered, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "expected"), [("100", (50, 100)), ("640x480", (480, 640)), ("1", (1, 1)), ("8192", (4096, 8192))]
)
def test_sizes(text: str, expected: tuple[int, int]) -> None:
    assert parse_size(text, 30, 60) == expected


@pytest.mark.parametrize("text", ["0", "-3", "x", "1x2x3", "big", "9000", "8193x1", "", "1.5", "1024²", "9" * 5000])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match="size"):
        parse_size(text, 30, 60)
