"""psnr and ssim are scikit-image's, along one, two and three axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from whence.fields.images import read
from whence.fields.metrics import CAP, psnr, ssim

pytest.importorskip("PIL")
skimage = pytest.importorskip("skimage")
metrics = pytest.importorskip("skimage.metrics")
PICTURES = Path(skimage.__file__).parent / "data"


def their_ssim(said: Tensor, truth: Tensor) -> list[float]:
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    pairs = zip(said.double().numpy(), truth.double().numpy(), strict=True)
    return [metrics.structural_similarity(a, b, channel_axis=0, **options) for a, b in pairs]


def their_psnr(said: Tensor, truth: Tensor) -> list[float]:
    pairs = zip(said.double().numpy(), truth.double().numpy(), strict=True)
    return [metrics.peak_signal_noise_ratio(b, a, data_range=1.0) for a, b in pairs]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "shape",
    [(3, 2, 11), (2, 1, 64), (3, 3, 11, 11), (2, 1, 40, 23), (2, 3, 17, 31), (2, 1, 11, 12, 13), (1, 2, 16, 16, 16)],
)
def test_of_noise(shape: tuple[int, ...]) -> None:
    truth = noise(*shape)
    for said in (noise(*shape, seed=1), truth + 0.1 * noise(*shape, seed=2), 1 - truth, truth * 0):
        assert psnr(said, truth).tolist() == pytest.approx(their_psnr(said, truth), abs=1e-10)
        assert ssim(said, truth).tolist() == pytest.approx(their_ssim(said, truth), abs=1e-10)


@pytest.mark.parametrize("name", ["astronaut.png", "camera.png", "coffee.png"])
@pytest.mark.parametrize("grey", [False, True])
def test_of_pictures(name: str, grey: bool) -> None:
    truth = read(PICTURES / name)[None, :, 60:260, 100:330]
    truth = truth.mean(1, keepdim=True) if grey else truth
    blurred = torch.nn.functional.avg_pool2d(truth, 5, 1, 2, count_include_pad=False)
    said, both = torch.cat([blurred, truth + 0.05 * noise(*truth.shape)]), truth.expand(2, -1, -1, -1)
    assert psnr(said, both).tolist() == pytest.approx(their_psnr(said, both), abs=1e-10)
    assert ssim(said, both).tolist() == pytest.approx(their_ssim(said, both), abs=1e-10)
    assert 0.2 < ssim(said, both).min() < ssim(said, both).max() < 0.99


def test_equal_pictures() -> None:
    truth = noise(2, 3, 16, 16)
    assert psnr(truth, truth).tolist() == [CAP, CAP]
    assert psnr(truth.double() + 1e-7, truth.double()).tolist() == [CAP, CAP]
    assert psnr(truth.double() + 1e-4, truth.double()).tolist() == pytest.approx([80, 80])
    assert ssim(truth, truth).tolist() == pytest.approx([1, 1], abs=1e-12)


def test_one_value_for_every_row() -> None:
    truth, said = noise(4, 3, 16, 16), noise(4, 3, 16, 16, seed=1)
    for measure in (psnr, ssim):
        together = measure(said, truth)
        assert together.shape == (4,)
        assert together.dtype == torch.float64
        alone = torch.cat([measure(said[row : row + 1], truth[row : row + 1]) for row in range(4)])
        assert torch.allclose(together, alone, atol=1e-12)


def test_numbers_that_are_none_stay_so() -> None:
    said = torch.full((1, 1, 16), torch.nan)
    assert np.isnan(psnr(said, noise(1, 1, 16)).item())
    assert np.isnan(ssim(said, noise(1, 1, 16)).item())


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="11 or more"):
        ssim(noise(1, 1, 20, 10), noise(1, 1, 20, 10))
    for measure in (psnr, ssim):
        with pytest.raises(ValueError, match="both must be"):
            measure(noise(2, 3, 16, 16), noise(1, 3, 16, 16))
        with pytest.raises(ValueError, match="both must be"):
            measure(noise(16, 16), noise(16, 16))
