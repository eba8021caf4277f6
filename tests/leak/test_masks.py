"""What is masked, and how far it is from what is visible."""

from __future__ import annotations

import pytest
import torch

from whence.leak.masks import Pattern, distances, draw


@pytest.mark.parametrize("pattern", ["random", "blocks", "tail"])
@pytest.mark.parametrize("ratio", [0.01, 0.15, 0.5, 0.9, 1.0])
def test_every_row_hides_equally_many(pattern: Pattern, ratio: float) -> None:
    masked = draw(torch.Generator().manual_seed(0), 50, 20, ratio, pattern)
    assert masked.shape == (50, 20)
    assert set(masked.sum(1).tolist()) == {max(1, round(20 * ratio))}


def test_patterns_are_what_they_say() -> None:
    place = torch.Generator().manual_seed(0)
    random, blocks, tail = (draw(place, 400, 24, 0.5, pattern) for pattern in ("random", "blocks", "tail"))
    assert (random.float().mean(0) - 0.5).abs().max() < 0.15, "every place is masked equally often"
    assert (blocks.float().mean(0) - 0.5).abs().max() < 0.15
    assert tail[:, 12:].all()
    assert not tail[:, :12].any()

    def changes(masked: torch.Tensor) -> float:
        return (masked[:, 1:] != masked[:, :-1]).float().mean().item()

    assert changes(random) > 0.45
    assert changes(blocks) < 0.25


@pytest.mark.parametrize("seed", range(5))
def test_distances_place_by_place(seed: int) -> None:
    visible = torch.rand(7, 15, generator=torch.Generator().manual_seed(seed)) < 0.3
    visible[0] = False
    visible[1] = True
    before, after = distances(visible)
    for row in range(7):
        seen = [t for t in range(15) if visible[row, t]]
        for t in range(15):
            assert before[row, t] == min((t - s for s in seen if s < t), default=0)
            assert after[row, t] == min((s - t for s in seen if s > t), default=0)
