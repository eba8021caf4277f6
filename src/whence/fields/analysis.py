"""Analysis of a trained field: token swap, location jitter, query offset, pruning, PCA. Stored as artifacts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from whence.config import Config
from whence.fields.attention import Attended, Encoded
from whence.fields.baselines import cell, grid, resize
from whence.fields.config import AnalyzeConfig, Output
from whence.fields.decode import decode
from whence.fields.metrics import Diversity, psnr
from whence.fields.model import FieldModel
from whence.fields.run import FieldsRun, diversity
from whence.random import Streams, generator
from whence.store.artifacts import Artifact, ArtifactKind

CROPS, RANKED = 16, 4
"""Analyzed signals, and those of them on which the contribution of each token is measured"""
JITTERS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Standard deviations of locations, and offsets of queries, in spacings of position tokens."""
PRUNED = (0.0, 0.1, 0.25, 0.5, 0.75)
SHOWN = 4
"""Signals on a page."""


class Pruning(Config):
    """Contribution of each position token in dB, and PSNR by share of tokens removed, least important first."""

    contribution: list[float]
    psnr: dict[float, float]


class FieldAnalysis(Config):
    """PSNR (dB) of the field at the resolution of the input, unless noted, intact and after each intervention."""

    own: float
    swapped: float
    """With the position tokens of another signal"""
    diversity: Diversity
    render: float | None = None
    """Of the render, at the finest resolution"""
    render_swapped: float | None = None
    jitter: dict[float, float]
    """By standard deviation of the noise on the locations of position tokens, in spacings"""
    query_offset: dict[float, float]
    """By distance between the decoded coordinate and the coordinate that attends to the tokens, in spacings"""
    neighbours: list[int]
    """For every signal, the other signal whose mean position token has the highest cosine similarity"""
    pruning: Pruning


ANALYSES = ArtifactKind("field_analysis", AnalyzeConfig, FieldAnalysis)
Analysis = Artifact[AnalyzeConfig, FieldAnalysis]


def analyze(model: FieldModel, run: FieldsRun, on_progress: Callable[[str], None]) -> FieldAnalysis:
    """Analyze a model on signals of the test split."""
    signals, x = example_signals(run, CROPS)
    with torch.no_grad():
        encoded = model.encode(x)

        def field(tokens: Encoded) -> float:
            return _quality(decode(model, x, model.size, "field", tokens), x)

        def render(tokens: Encoded) -> float | None:
            if model.renderer is None:
                return None
            return _quality(decode(model, x, tuple(signals.shape[2:]), "render", tokens), signals)

        on_progress("Swapping position tokens")
        swapped = encoded.swapped()
        own, field_swapped = field(encoded), field(swapped)
        rendered, render_swapped = render(encoded), render(swapped)
        on_progress("Jittering token locations and offsetting queries")
        spacing = model.shape.spacing
        noise = torch.randn(encoded.locations.shape, generator=torch.Generator().manual_seed(0))
        at = grid(model.size)[None]

        def offset(by: float) -> float:
            values = model.field(encoded, at, cell(model.size), at + by * spacing)
            return _quality(values.mT.unflatten(-1, model.size), x)

        jitter = {by: field(replace(encoded, locations=encoded.locations + by * spacing * noise)) for by in JITTERS}
        query_offset = {by: offset(by) for by in JITTERS}
        on_progress("Pruning position tokens one at a time")
        return FieldAnalysis(
            own=own,
            swapped=field_swapped,
            diversity=diversity(encoded),
            render=rendered,
            render_swapped=render_swapped,
            jitter=jitter,
            query_offset=query_offset,
            neighbours=_neighbours(encoded),
            pruning=_prune(model, x),
        )


def _quality(values: Tensor, truth: Tensor) -> float:
    return float(psnr(values.clamp(0, 1), truth).mean())


def _neighbours(encoded: Encoded) -> list[int]:
    mean = encoded.lps.mean(1)
    unit = functional.normalize(mean - mean.mean(0), dim=-1)
    return (unit @ unit.T).fill_diagonal_(-2).argmax(1).tolist()


def _prune(model: FieldModel, x: Tensor) -> Pruning:
    few, rest, count = x[:RANKED], x[RANKED:], model.config.lps  # ranked on some signals, evaluated on others

    def without(removed: Sequence[int], signals: Tensor) -> float:
        """Quality with these position tokens neither in the sequence nor attended to."""
        model.positions.selected = torch.tensor([index for index in range(count) if index not in removed])
        try:
            return _quality(decode(model, signals, model.size, "field"), signals)
        finally:
            model.positions.selected = None

    whole = without([], few)
    contribution = [whole - without([index], few) for index in range(count)] if count > 1 else [whole]
    worst_first = sorted(range(count), key=contribution.__getitem__)
    pruned = {share: without(worst_first[: min(count - 1, round(share * count))], rest) for share in PRUNED}
    return Pruning(contribution=contribution, psnr=pruned)


# --- images for a page: recomputed, because a few decodings are cheaper than files to store and verify


def example_signals(run: FieldsRun, count: int) -> tuple[Tensor, Tensor]:
    """Target signals of the test split and their inputs; the same for every call."""
    data = run.data.build()
    signals = data.draw(generator(Streams.of(0).evaluation, "analysis", str(run.data)), count, "test")
    return signals, data.at(signals, data.inputs)


def side_by_side(model: FieldModel, signals: Tensor, x: Tensor) -> dict[str, Tensor]:
    """By name, (rows, channels, *true): the original, bicubic interpolation, and the outputs of the model."""
    size = tuple(signals.shape[2:])
    outputs: list[Output] = ["field"] if model.renderer is None else ["field", "render"]
    with torch.no_grad():
        encoded = model.encode(x)
        decoded = {output: decode(model, x, size, output, encoded) for output in outputs}
    return {"original": signals, "bicubic": resize(x, size, "bicubic"), **decoded}


def as_images(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """(rows, 3, height, width), with the absolute error of the last column; of a volume, its middle slice."""
    name, last = list(columns.items())[-1]
    error = (last.clamp(0, 1) - columns["original"]).abs().mean(1, keepdim=True)
    images = {}
    for column, values in {**columns, f"|{name} − original| × 4": 4 * error}.items():
        values = values.clamp(0, 1)
        values = values[:, :, values.shape[2] // 2] if values.ndim == 5 else values
        images[column] = values if values.shape[1] == 3 else values[:, :1].expand(-1, 3, -1, -1)
    return images


def analysis_images(model: FieldModel, run: FieldsRun) -> dict[str, Tensor]:
    """By column, (rows, 3, height, width) of the first analyzed signals; empty unless signals are images."""
    if len(model.size) != 2:
        return {}
    signals, x = (values[:SHOWN] for values in example_signals(run, CROPS))
    size = (64, 64)
    at = grid(size)[None]
    columns = as_images(side_by_side(model, signals, x))
    with torch.no_grad():
        encoded = model.encode(x)
        columns["token features (PCA)"] = _principal_components(model.hyponet.modulation(encoded, at), size)
        if isinstance(model.hyponet, Attended):
            most = model.hyponet.nearness(encoded, at)[0].mean(0).argmax(-1)
            colours = torch.rand(model.config.lps, 3, generator=torch.Generator().manual_seed(3))
            columns["most attended token"] = colours[most].T.unflatten(-1, size).expand(SHOWN, -1, -1, -1)
    return {name: values.clamp(0, 1) for name, values in columns.items()}


def _principal_components(features: Tensor, size: tuple[int, int]) -> Tensor:
    """The first three principal components of the token features at each pixel, as red, green and blue."""
    flat = features.flatten(0, 1) - features.flatten(0, 1).mean(0)
    _, _, axes = torch.pca_lowrank(flat, q=min(3, flat.shape[-1]), niter=4)
    scores = flat @ axes
    scores = functional.pad(scores, (0, 3 - scores.shape[-1]))
    colours = scores / (4 * scores.std(0).max().clamp(min=1e-9)) + 0.5
    return colours.unflatten(0, (len(features), -1)).mT.unflatten(-1, size)
