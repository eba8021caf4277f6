"""What a trained field relies on: its position tokens swapped, moved, left out, and drawn. Stored as artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from whence.config import Config
from whence.fields.baselines import cell, grid, resize
from whence.fields.config import AnalyzeConfig
from whence.fields.decode import decode
from whence.fields.hyponets.base import Attended
from whence.fields.metrics import Diversity, psnr
from whence.fields.model import Encoded, FieldModel
from whence.fields.run import FieldsRun, diversity
from whence.random import Streams, generator
from whence.store.artifacts import ArtifactKind

CROPS, RANKED = 16, 4
"""Signals that are analyzed, and those of them on which the contribution of tokens is measured"""
JITTERS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Standard deviations of locations, and offsets of queries, in spacings of position tokens."""
PRUNED = (0.0, 0.1, 0.25, 0.5, 0.75)
SHOWN = 4
"""Signals on a page."""


class Pruning(Config):
    """dB that each position token contributes, and by share of those left out, the PSNR without the least of them."""

    contribution: list[float]
    psnr: dict[float, float]


class FieldAnalysis(Config):
    """PSNR (dB) of the field at the input's own size, unless noted, and what changes it."""

    own: float
    swapped: float
    """With the position tokens of another signal"""
    diversity: Diversity
    render: float | None = None
    """Of the render, at the finest size"""
    render_swapped: float | None = None
    jitter: dict[float, float]
    """By standard deviation of the noise on the locations of position tokens, in spacings"""
    query_offset: dict[float, float]
    """By distance between the coordinate that is decoded and the one that attends to the tokens, in spacings"""
    neighbours: list[int]
    """For every signal, the other one whose mean position token is nearest by cosine"""
    pruning: Pruning


ANALYSES = ArtifactKind("field_analysis", AnalyzeConfig, FieldAnalysis)


def analyze(model: FieldModel, run: FieldsRun, on_progress: Callable[[str], None] = lambda text: None) -> FieldAnalysis:
    """On signals of the test split."""
    signals, x = example_signals(run, CROPS)
    with torch.no_grad():
        encoded = model.encode(x)

        def quality(values: Tensor) -> float:
            return float(psnr(values.clamp(0, 1), x).mean())

        def rendered(tokens: Encoded) -> float | None:
            if model.renderer is None:
                return None
            values = decode(model, x, tuple(signals.shape[2:]), "render", tokens)
            return float(psnr(values.clamp(0, 1), signals).mean())

        own = quality(decode(model, x, model.size, "field", encoded))
        on_progress("Swapping position tokens")
        swapped = quality(decode(model, x, model.size, "field", encoded.swapped()))
        render, render_swapped = rendered(encoded), rendered(encoded.swapped())
        on_progress("Moving locations and queries")
        jitter = {by: quality(_jittered(model, x, encoded, by)) for by in JITTERS}
        query_offset = {by: quality(_offset_queries(model, encoded, by)) for by in JITTERS}
        on_progress("Pruning position tokens, one by one")
        return FieldAnalysis(
            own=own,
            swapped=swapped,
            diversity=diversity(encoded),
            render=render,
            render_swapped=render_swapped,
            jitter=jitter,
            query_offset=query_offset,
            neighbours=_neighbours(encoded),
            pruning=prune(model, x),
        )


def _spacing(model: FieldModel) -> float:
    return model.config.lps ** (-1 / len(model.size))


def _jittered(model: FieldModel, x: Tensor, encoded: Encoded, by: float) -> Tensor:
    noise = torch.randn(encoded.locations.shape, generator=torch.Generator().manual_seed(0))
    moved = Encoded(encoded.lps, encoded.locations + by * _spacing(model) * noise)
    return decode(model, x, model.size, "field", moved)


def _offset_queries(model: FieldModel, encoded: Encoded, by: float) -> Tensor:
    at = grid(model.size)[None]
    values = model.field(encoded, at, cell(model.size), at + by * _spacing(model))
    return values.mT.unflatten(-1, model.size)


def _neighbours(encoded: Encoded) -> list[int]:
    mean = encoded.lps.mean(1)
    unit = mean - mean.mean(0)
    unit = unit / unit.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return (unit @ unit.T).fill_diagonal_(-2).argmax(1).tolist()


@contextmanager
def only(model: FieldModel, selected: Sequence[int]) -> Iterator[None]:
    """Other position tokens are neither in the sequence nor attended to."""
    indices = torch.tensor(sorted(selected))
    model.positions.selected = model.hyponet.selected = indices
    try:
        yield
    finally:
        model.positions.selected = model.hyponet.selected = None


def prune(model: FieldModel, x: Tensor) -> Pruning:
    few, rest, count = x[:RANKED], x[RANKED:], model.config.lps  # ranked on some, judged on others
    everything = range(count)

    def quality(selected: Sequence[int], signals: Tensor) -> float:
        with only(model, selected):
            return float(psnr(decode(model, signals, model.size, "field").clamp(0, 1), signals).mean())

    whole = quality(everything, few)
    contribution = (
        [whole - quality([i for i in everything if i != left], few) for left in everything] if count > 1 else [whole]
    )
    worst_first = sorted(everything, key=lambda index: contribution[index])
    pruned: dict[float, float] = {}
    for share in PRUNED:
        gone = set(worst_first[: min(count - 1, round(share * count))])
        pruned[share] = quality([index for index in everything if index not in gone], rest)
    return Pruning(contribution=contribution, psnr=pruned)


# --- images for a page: made anew, because a few decodings are cheaper than files to store and verify


def example_signals(run: FieldsRun, count: int) -> tuple[Tensor, Tensor]:
    """True signals of the test split, and the inputs; always the same ones."""
    data = run.data.build()
    signals = data.draw(generator(Streams.of(0).evaluation, "analysis", str(run.data)), count, "test")
    return signals, data.at(signals, data.inputs)


def side_by_side(model: FieldModel, signals: Tensor, x: Tensor, encoded: Encoded | None = None) -> dict[str, Tensor]:
    """By name, (rows, channels, *true): the original, interpolated, and the model's outputs."""
    size = tuple(signals.shape[2:])
    with torch.no_grad():
        encoded = model.encode(x) if encoded is None else encoded
        columns = {
            "original": signals,
            "bicubic": resize(x, size, "bicubic"),
            "field": decode(model, x, size, "field", encoded),
        }
        if model.renderer is not None:
            columns["render"] = decode(model, x, size, "render", encoded)
    return columns


def as_images(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """(rows, 3, height, width), and the error of the last beside; of a volume, its middle slice."""
    name, last = list(columns.items())[-1]
    error = (last.clamp(0, 1) - columns["original"]).abs().mean(1, keepdim=True)
    images = {}
    for column, values in {**columns, f"error of the {name} × 4": 4 * error}.items():
        values = values.clamp(0, 1)
        values = values[:, :, values.shape[2] // 2] if values.ndim == 5 else values
        images[column] = values if values.shape[1] == 3 else values[:, :1].expand(-1, 3, -1, -1)
    return images


def analysis_images(model: FieldModel, run: FieldsRun) -> dict[str, Tensor]:
    """By column, (rows, 3, height, width) of the first signals that are analyzed; none unless signals are images."""
    if len(model.size) != 2:
        return {}
    signals, x = example_signals(run, CROPS)
    with torch.no_grad():
        encoded = model.encode(x)
        some = Encoded(encoded.lps[:SHOWN], encoded.locations)
        columns = as_images(side_by_side(model, signals[:SHOWN], x[:SHOWN], some))
        columns["token features (PCA)"] = _principal_components(model, some, (64, 64))
        attended = _most_attended(model, encoded, (64, 64))
    if attended is not None:
        columns["most attended token"] = attended.expand(SHOWN, -1, -1, -1)
    return {name: values.clamp(0, 1) for name, values in columns.items()}


def _principal_components(model: FieldModel, encoded: Encoded, size: tuple[int, int]) -> Tensor:
    """The first three of the features that tokens have at each pixel, as red, green and blue."""
    features = model.hyponet.modulation(encoded.lps, encoded.locations, grid(size)[None])
    flat = features.flatten(0, 1) - features.flatten(0, 1).mean(0)
    _, _, axes = torch.pca_lowrank(flat, q=min(3, flat.shape[-1]), niter=4)
    scores = flat @ axes
    scores = torch.nn.functional.pad(scores, (0, 3 - scores.shape[-1]))
    colours = scores / (4 * scores.std(0).max().clamp(min=1e-9)) + 0.5
    return colours.unflatten(0, (len(features), -1)).mT.unflatten(-1, size)


def _most_attended(model: FieldModel, encoded: Encoded, size: tuple[int, int]) -> Tensor | None:
    """(1, 3, height, width): every pixel in the colour of the token that it attends to most; None: not by place."""
    if not isinstance(model.hyponet, Attended):
        return None
    most = model.hyponet.nearness(encoded.locations[:1], grid(size)[None])[0].mean(0).argmax(-1)
    colours = torch.rand(model.config.lps, 3, generator=torch.Generator().manual_seed(3))
    return colours[most].T.unflatten(-1, size)[None]
