"""What a trained field rests on: its position tokens taken from elsewhere, moved, left out, and looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whence.fields.baselines import cell, grid, resize
from whence.fields.decode import decode
from whence.fields.hyponets.base import Attended
from whence.fields.metrics import psnr
from whence.fields.model import Encoded, FieldModel
from whence.fields.run import FieldsRun, diversity
from whence.random import Streams, generator

CROPS, PROBED = 16, 4
JITTERS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Deviations of places, and distances of listening, in spacings of position tokens."""
PRUNED = (0.0, 0.1, 0.25, 0.5, 0.75)
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Analysis:
    """Numbers for JSON, and pictures (channels, height, width) for a page."""

    numbers: dict[str, Any]
    pictures: dict[str, list[Tensor]]
    """By column: what a page shows side by side, one per signal"""


def analyse(model: FieldModel, run: FieldsRun, tell: Tell = lambda words: None) -> Analysis:
    """On signals of the test split, at the input's own resolution unless said otherwise."""
    signals, x = drawn(run, CROPS)
    with torch.no_grad():
        encoded = model.encode(x)

        def quality(said: Tensor) -> float:
            return float(psnr(said.clamp(0, 1), x).mean())

        own = quality(decode(model, x, model.size, "field", encoded))
        tell("with the position tokens of other signals")
        numbers: dict[str, Any] = {
            "own": own,
            "swapped": quality(decode(model, x, model.size, "field", encoded.swapped())),
            "diversity": diversity(encoded),
        }
        if model.renderer is not None:
            finest = tuple(signals.shape[2:])
            for name, tokens in (("render", encoded), ("render_swapped", encoded.swapped())):
                made = decode(model, x, finest, "render", tokens).clamp(0, 1)
                numbers[name] = float(psnr(made, signals).mean())
        tell("moved places, and listening elsewhere")
        numbers["jitter"] = {f"{j:g}": quality(_jittered(model, x, encoded, j)) for j in JITTERS}
        numbers["listening"] = {f"{j:g}": quality(_elsewhere(model, x, encoded, j)) for j in JITTERS}
        numbers["neighbours"] = _neighbours(encoded)
        tell("position tokens left out, one by one")
        numbers["pruning"] = prune(model, x)
        pictures = _pictures(model, x, signals, encoded) if len(model.size) == 2 else {}
    return Analysis(numbers, pictures)


def _spacing(model: FieldModel) -> float:
    return model.spec.lps ** (-1 / len(model.size))


def _jittered(model: FieldModel, x: Tensor, encoded: Encoded, by: float) -> Tensor:
    noise = torch.randn(encoded.locations.shape, generator=torch.Generator().manual_seed(0))
    moved = Encoded(encoded.lps, encoded.locations + by * _spacing(model) * noise)
    return decode(model, x, model.size, "field", moved)


def _elsewhere(model: FieldModel, x: Tensor, encoded: Encoded, by: float) -> Tensor:
    """Tokens are listened to beside the point whose value is asked for."""
    at = grid(model.size)[None]
    values = model.field(encoded, at, cell(model.size), at + by * _spacing(model))
    return values.mT.unflatten(-1, model.size)


def _neighbours(encoded: Encoded) -> list[int]:
    """For every signal, the other one whose mean position token is nearest by cosine."""
    mean = encoded.lps.mean(1)
    unit = mean - mean.mean(0)
    unit = unit / unit.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return (unit @ unit.T).fill_diagonal_(-2).argmax(1).tolist()


@contextmanager
def only(model: FieldModel, kept: Sequence[int]) -> Iterator[None]:
    """Position tokens that are not kept neither stand in the sequence nor are listened to."""
    chosen = torch.tensor(sorted(kept))
    model.positions.selected = model.hyponet.kept = chosen
    try:
        yield
    finally:
        model.positions.selected = model.hyponet.kept = None


def prune(model: FieldModel, x: Tensor) -> dict[str, Any]:
    """What each position token contributes, and what is lost when the least of them go."""
    few, rest, count = x[:PROBED], x[PROBED:], model.spec.lps  # ranked on some, judged on others
    everything = range(count)

    def quality(kept: Sequence[int], signals: Tensor) -> float:
        with only(model, kept):
            return float(psnr(decode(model, signals, model.size, "field").clamp(0, 1), signals).mean())

    whole = quality(everything, few)
    contribution = (
        [whole - quality([i for i in everything if i != left], few) for left in everything] if count > 1 else [whole]
    )
    worst_first = sorted(everything, key=lambda index: contribution[index])
    left: dict[str, float] = {}
    for share in PRUNED:
        gone = set(worst_first[: min(count - 1, round(share * count))])
        left[f"{share:g}"] = quality([index for index in everything if index not in gone], rest)
    return {"contribution": contribution, "left": left}


def _pictures(model: FieldModel, x: Tensor, signals: Tensor, encoded: Encoded) -> dict[str, list[Tensor]]:
    some = Encoded(encoded.lps[:SHOWN], encoded.locations)
    columns = as_pictures(side_by_side(model, signals[:SHOWN], x[:SHOWN], some))
    columns["what tokens say (PCA)"] = _principal(model, some, (64, 64))
    listened = _listened(model, encoded, (64, 64))
    if listened is not None:
        columns["which token is heard"] = listened.expand(SHOWN, -1, -1, -1)
    return {name: list(values.clamp(0, 1)) for name, values in columns.items()}


def _principal(model: FieldModel, encoded: Encoded, size: tuple[int, int]) -> Tensor:
    """The first three principal components of what tokens say at each point, as red, green and blue."""
    said = model.hyponet.modulation(encoded.lps, encoded.locations, grid(size)[None])
    flat = said.flatten(0, 1) - said.flatten(0, 1).mean(0)
    _, _, axes = torch.pca_lowrank(flat, q=min(3, flat.shape[-1]), niter=4)
    found = flat @ axes
    found = torch.nn.functional.pad(found, (0, 3 - found.shape[-1])) / (4 * found.std(0).max().clamp(min=1e-9)) + 0.5
    return found.unflatten(0, (len(said), -1)).mT.unflatten(-1, size)


def _listened(model: FieldModel, encoded: Encoded, size: tuple[int, int]) -> Tensor | None:
    """(1, 3, height, width): every point in the colour of the token that it hears most; None: not by place."""
    if not isinstance(model.hyponet, Attended):
        return None
    most = model.hyponet.nearness(encoded.locations[:1], grid(size)[None])[0].mean(0).argmax(-1)
    colours = torch.rand(model.spec.lps, 3, generator=torch.Generator().manual_seed(3))
    return colours[most].T.unflatten(-1, size)[None]


SHOWN = 4
"""Signals on a page."""


def drawn(run: FieldsRun, count: int) -> tuple[Tensor, Tensor]:
    """True signals of the test split, and what the model is shown of them; always the same ones."""
    data = run.data.build()
    signals = data.draw(generator(Streams.of(0).evaluation, "analysis", str(run.data)), count, "test")
    return signals, data.at(signals, data.inputs)


def side_by_side(model: FieldModel, signals: Tensor, x: Tensor, encoded: Encoded | None = None) -> dict[str, Tensor]:
    """By name, (rows, channels, *true): the original, interpolated, and the model's outputs."""
    size = tuple(signals.shape[2:])
    with torch.no_grad():
        encoded = model.encode(x) if encoded is None else encoded
        found = {
            "original": signals,
            "cubic": resize(x, size, "cubic"),
            "field": decode(model, x, size, "field", encoded),
        }
        if model.renderer is not None:
            found["render"] = decode(model, x, size, "render", encoded)
    return found


def as_pictures(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """(rows, 3, height, width), and the error of the last beside; of a volume, its middle slice."""
    name, last = list(columns.items())[-1]
    error = (last.clamp(0, 1) - columns["original"]).abs().mean(1, keepdim=True)
    columns = {**columns, f"error of the {name} × 4": 4 * error}
    found = {}
    for name, values in columns.items():
        values = values.clamp(0, 1)
        values = values[:, :, values.shape[2] // 2] if values.ndim == 5 else values
        values = values if values.shape[1] == 3 else values[:, :1].expand(-1, 3, -1, -1)
        found[name] = values
    return found
