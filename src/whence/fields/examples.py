"""A few signals never trained on, and what becomes of them: for looking at."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.fields.baselines import resize
from whence.fields.model import Encoded, FieldModel
from whence.fields.run import FieldsRun
from whence.fields.tiles import decode
from whence.training.streams import Streams, generator

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
