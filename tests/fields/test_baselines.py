"""Resizing against Pillow, torch and plain integrals; the fitted kernel against one that was planted."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from whence.fields.baselines import LeastSquaresKernel, Resampling, resize
from whence.fields.images import read
from whence.fields.metrics import psnr

Image = pytest.importorskip("PIL.Image")


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", [(24, 36), (17, 23), (12, 50), (61, 9)])
def test_linear_is_pillows(size: tuple[int, int]) -> None:
    x = noise(1, 1, 12, 9)
    theirs = np.asarray(Image.fromarray(x[0, 0].float().numpy()).resize(size[::-1], Image.Resampling.BILINEAR))
    assert resize(x.float(), size, "linear")[0, 0].numpy() == pytest.approx(theirs, abs=2e-6)


@pytest.mark.parametrize("size", [(24, 36), (17, 23), (12, 50), (61, 9)])
@pytest.mark.parametrize("kind", ["linear", "bicubic"])
def test_larger_is_torchs(size: tuple[int, int], kind: Resampling) -> None:
    x = noise(2, 3, 12, 9)
    theirs = functional.interpolate(x, size, mode="bilinear" if kind == "linear" else kind, align_corners=False)
    assert torch.allclose(resize(x, size, kind), theirs, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "bicubic"])
@pytest.mark.parametrize(("old", "new"), [(7, 21), (5, 8), (1, 4), (2, 3)])
def test_beyond_the_edge_the_outermost_are_repeated(kind: Resampling, old: int, new: int) -> None:
    """As if the signal had been continued, and the result cut out."""
    x, beyond = noise(2, 3, old), 4
    longer = torch.cat([x[..., :1].expand(-1, -1, beyond * old), x, x[..., -1:].expand(-1, -1, beyond * old)], -1)
    whole = resize(longer, [new * (2 * beyond + 1)], kind)
    assert torch.allclose(resize(x, [new], kind), whole[..., beyond * new : (beyond + 1) * new], atol=1e-12)


@pytest.mark.parametrize(("old", "new"), [((12, 18), (4, 9)), ((8, 8), (1, 1)), ((6, 10), (6, 5))])
def test_area_at_whole_ratios_is_torchs(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    x = noise(2, 3, *old)
    assert torch.allclose(resize(x, new, "area"), functional.adaptive_avg_pool2d(x, new), atol=1e-12)


@pytest.mark.parametrize(("old", "new"), [(7, 3), (10, 7), (9, 8), (5, 13), (64, 27)])
def test_area_is_the_integral_at_any_ratio(old: int, new: int) -> None:
    x = noise(1, 1, old)
    expected = []
    for i in range(new):
        start, end = Fraction(i * old, new), Fraction((i + 1) * old, new)
        covered = [max(min(end, j + 1) - max(start, Fraction(j)), Fraction(0)) for j in range(old)]
        expected.append(sum(float(part / (end - start)) * float(x[0, 0, j]) for j, part in enumerate(covered)))
    assert resize(x, [new], "area")[0, 0].tolist() == pytest.approx(expected, abs=1e-12)


def test_area_keeps_the_mean() -> None:
    x = noise(2, 1, 31, 17, 9)
    assert torch.allclose(resize(x, (13, 5, 9), "area").mean((2, 3, 4)), x.mean((2, 3, 4)), atol=1e-12)


CASES: list[tuple[Resampling, tuple[int, ...], tuple[int, ...]]] = [
    ("linear", (9,), (31,)),
    ("bicubic", (6, 7), (13, 28)),
    ("bicubic", (4, 5, 6), (4, 9, 13)),
    ("area", (16, 11), (5, 11)),
    ("area", (6, 7, 8), (5, 20, 3)),
]


@pytest.mark.parametrize(("kind", "old", "new"), CASES)
def test_constants_stay_constant(kind: Resampling, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    found = resize(torch.full((2, 3, *old), 0.7), new, kind)
    assert found.shape == (2, 3, *new)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    assert torch.allclose(found, torch.tensor(0.7), atol=1e-6)


@pytest.mark.parametrize(("kind", "old", "new"), [("linear", 12, 40), ("area", 12, 4)])
def test_ramps_stay_ramps_inside(kind: Resampling, old: int, new: int) -> None:
    """Places are centres of pixels, on an axis from 0 to 1."""

    def centres(n: int) -> Tensor:
        return (torch.arange(n, dtype=torch.float64) + 0.5) / n

    found = resize(centres(old)[None, None], [new], kind)[0, 0]
    edge = 0 if kind == "area" else -(-2 * new // old)
    inside = slice(edge, new - edge)
    assert torch.allclose(found[inside], centres(new)[inside], atol=1e-12)


def test_axes_are_independent() -> None:
    x = noise(2, 2, 5, 6, 7)
    one = x
    for axis, new in enumerate((9, 6, 15), 2):
        lines = one.movedim(axis, -1)
        found = resize(lines.reshape(-1, 1, lines.shape[-1]), [new], "bicubic")
        one = found.reshape(*lines.shape[:-1], new).movedim(-1, axis)
    assert torch.allclose(resize(x, (9, 6, 15), "bicubic"), one, atol=1e-12)


def test_the_same_size_is_the_same_picture() -> None:
    x = noise(1, 3, 8, 9)
    for kind in ("linear", "bicubic", "area"):
        assert torch.equal(resize(x, (8, 9), kind), x)


@pytest.mark.parametrize("kind", ["linear", "bicubic"])
def test_fewer_points_would_alias(kind: Resampling) -> None:
    with pytest.raises(ValueError, match="use area"):
        resize(noise(1, 1, 8, 8), (16, 7), kind)


def planted(scale: int) -> LeastSquaresKernel:
    return LeastSquaresKernel(noise(scale**2, 7, 7, seed=3) - 0.5, noise(scale**2, seed=4))


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_a_planted_kernel_is_found(scale: int) -> None:
    truth, low = planted(scale), noise(6, 2, 20, 17)
    found = LeastSquaresKernel.fit(low, truth(low))
    assert torch.allclose(found.kernel, truth.kernel, atol=3e-5)
    assert torch.allclose(found.bias, truth.bias, atol=3e-4)
    new = noise(1, 1, 12, 12, seed=9)
    assert torch.allclose(found(new), truth(new), atol=1e-4)


def test_what_a_kernel_does_by_hand() -> None:
    made, low = planted(2), noise(2, 3, 6, 5)
    high = made(low)
    assert high.shape == (2, 3, 12, 10)
    padded = np.pad(low[1, 2].numpy(), 3, mode="edge")
    for row, column in [(0, 0), (3, 4), (7, 2), (11, 9)]:
        phase = row % 2 * 2 + column % 2
        patch = padded[row // 2 : row // 2 + 7, column // 2 : column // 2 + 7]
        expected = float((patch * made.kernel[phase].numpy()).sum() + made.bias[phase].item())
        assert high[1, 2, row, column].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scale", [2, 4])
@pytest.mark.parametrize("name", ["camera.png", "coffee.png"])
def test_on_its_own_data_it_is_no_worse_than_bicubic(name: str, scale: int) -> None:
    skimage = pytest.importorskip("skimage")
    high = read(Path(skimage.__file__).parent / "data" / name)[None, :, 40:240, 80:280]
    low = resize(high, (200 // scale, 200 // scale), "area")
    fitted = LeastSquaresKernel.fit(low, high)(low)
    assert fitted.dtype == torch.float32
    assert psnr(fitted, high) > psnr(resize(low, (200, 200), "bicubic"), high) + 0.2


def test_constant_pictures_can_be_fitted() -> None:
    low = torch.full((1, 1, 8, 8), 0.5)
    found = LeastSquaresKernel.fit(low, torch.full((1, 1, 16, 16), 0.5))
    assert torch.allclose(found(low), torch.tensor(0.5), atol=1e-5)
