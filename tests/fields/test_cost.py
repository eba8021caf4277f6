"""Time and memory, measured where nothing else was."""

from __future__ import annotations

import pytest
import torch

from whence.fields.config import FieldModelConfig, Output
from whence.fields.cost import crossing, encoder_cost, encoding_memory, in_fresh_process, memory_of, untrained
from whence.fields.decode import enlarge

SMALL = FieldModelConfig(d_model=16, layers=1, lps=16, render_width=8, render_layers=1)


def rendering_memory(config: FieldModelConfig, given: tuple[int, int], size: tuple[int, int], output: Output) -> float:
    """MiB beyond the model, the result included, to enlarge an image."""
    model = untrained(config, 3, (32, 32))
    enlarge(model, torch.rand(3, 8, 8), (8, 8), output)  # what is loaded once is part of the model
    return memory_of(lambda: enlarge(model, torch.rand(3, *given), size, output))


def test_the_crossing_is_where_the_curves_meet() -> None:
    linear = {n: 10.0 * n for n in (256, 512, 1024, 2048)}
    square = {n: n * n / 60 for n in (256, 512, 1024, 2048)}
    assert crossing(linear, square) == pytest.approx(600)
    assert crossing(square, linear) is None
    assert crossing(linear, {n: 2 * time for n, time in linear.items()}) == 256
    noisy = {256: 1.0, 512: 3.0, 1024: 2.0, 2048: 9.0}
    tokens = crossing({256: 2.0, 512: 2.0, 1024: 4.0, 2048: 4.0}, noisy)
    assert tokens is not None
    assert 1024 < tokens < 2048, "for good, not for once"


def test_more_tokens_need_more() -> None:
    config = FieldModelConfig.read({"mixer": "attention", "d_model": 16, "layers": 1})
    few, many = in_fresh_process(encoder_cost, config, (64, 8192)).costs
    assert (few.tokens, many.tokens) == (64, 8192)
    assert many.ms > few.ms
    assert many.mib > few.mib + 1
    # at the least, one float32 per token and feature
    assert many.mib >= 8192 * 16 * 4 / 2**20


def test_memory_beyond_the_model() -> None:
    assert 0 < in_fresh_process(encoding_memory, FieldModelConfig(), 3, (128, 128)) < 64


@pytest.mark.parametrize("output", [pytest.param("field", marks=pytest.mark.slow), "render"])
def test_a_large_rendering_needs_little_more_than_its_own_bytes(output: Output, slow: bool) -> None:
    """In the long form 4096² within 1 GiB. From few points, so that one window answers for many: 1536² are 7 MiB."""
    assert in_fresh_process(rendering_memory, SMALL, (4, 4), (1536, 1536), output) < 64
    if slow:
        assert in_fresh_process(rendering_memory, FieldModelConfig(), (128, 128), (4096, 4096), output) < 1024
