"""Fields from Python: train a model, load it, render an image at any size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whence.errors import UserError
from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import execute_runs
from whence.fields.config import Output
from whence.fields.decode import enlarge, parse_size
from whence.fields.images import data_uri, read, write
from whence.fields.model import FieldModel
from whence.fields.run import FieldsRun, load_model
from whence.report.html import render
from whence.report.notebook import fragment
from whence.store.runs import Store
from whence.system import Device

BESIDE = """\
<div class=maps>{% for name, uri in images.items() %}<figure style="margin: 0"><figcaption>{{ name }}</figcaption>
<img src="{{ uri }}" alt="{{ name }}" style="width: 22rem; max-width: 100%; image-rendering: pixelated"></figure>
{% endfor %}</div>"""


@dataclass(frozen=True)
class RenderedImage:
    """An image, and its rendering by a field model. A notebook shows both beside each other.

    Example:
        >>> pair = whence.fields.RenderedImage(torch.rand(3, 8, 8), torch.rand(3, 32, 32))
        >>> pair.save("big.png")
        >>> pair.pixels.shape
        torch.Size([3, 32, 32])
    """

    original: Tensor
    """(channels, height, width), values from 0 to 1"""
    pixels: Tensor
    """(channels, rendered height, rendered width), bytes, or values from 0 to 1"""

    def save(self, path: str | Path) -> None:
        """Write the rendering to an image file. The suffix determines the format."""
        write(path, self.pixels)

    def _repr_html_(self) -> str:
        """The two beside each other."""
        images = {f"{image.shape[2]} × {image.shape[1]}": data_uri(image) for image in (self.original, self.pixels)}
        return fragment([render(BESIDE, images=images)])


def train(
    *, store: str | Path | None = None, threads: int | None = None, device: Device = "auto", **fields: Any
) -> str:
    """Train one field model, as `whence fields train` does. A finished run is read from the store.

    Args:
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.
        threads: CPU threads; None: all cores.
        device: device to train on; "auto" uses a GPU if there is one.
        fields: fields of the configuration, grouped as `whence fields train --print-config` shows them:
            `data="photos", training={"steps": 1500}`. `data` also takes a directory of images, or a .npy file.

    Returns:
        The id of the run, for `load`.

    Raises:
        whence.errors.UserError: if a field is not valid, the model does not fit on this machine, or training fails.

    Example:
        >>> small = {"model": {"patch": 2, "d_model": 16, "layers": 1, "lps": 8}, "training": {"steps": 2, "crops": 2}}
        >>> run = whence.fields.train(data="digits", **small)
        >>> run == whence.fields.train(data="digits", **small)  # finished: read from the store
        True
    """
    run = FieldsRun.read(fields)
    options = ExecutionOptions.read({"workers": 1, "threads": threads, "device": device})
    [end] = execute_runs([run], Store(store), options).values()
    if end not in ("finished", "skipped"):
        raise UserError(f"run: {run.id} has not finished ({end}). See 'whence runs show {run.id}'.")
    return run.id


def load(run: str, *, store: str | Path | None = None) -> FieldModel:
    """Load the field model of a run.

    Args:
        run: id of a finished run, or its first digits.
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.

    Returns:
        The model in evaluation mode.

    Raises:
        whence.errors.UserError: if the run does not exist, has not finished, is damaged or is of another instrument.

    Example:
        >>> small = {"model": {"patch": 2, "d_model": 16, "layers": 1, "lps": 8}, "training": {"steps": 2, "crops": 2}}
        >>> field = whence.fields.load(whence.fields.train(data="digits", **small))
        >>> field.encode(torch.rand(3, field.channels, *field.size)).lps.shape  # (batch, position tokens, d_model)
        torch.Size([3, 8, 16])
    """
    return load_model(Store(store), run)[0]


def render_image(
    model: FieldModel, image: Tensor | str | Path, size: int | str | tuple[int, int], output: Output = "render"
) -> RenderedImage:
    """Render an image at any size, as `whence fields render` does.

    Args:
        model: a field model of images, from `whence.fields.load`.
        image: a file, or a tensor (channels, height, width) with values from 0 to 1, or of bytes (uint8).
        size: pixels of the longer side, "640x480" (width and height), or a tuple (height, width).
        output: "render", the enlarged input with corrections, or "field", what the position tokens alone carry.

    Returns:
        The image and its rendering.

    Raises:
        whence.errors.UserError: if the file is not an image, the size is too large, or the model has no such output.

    Example:
        >>> small = {"model": {"patch": 2, "d_model": 16, "layers": 1, "lps": 8}, "training": {"steps": 2, "crops": 2}}
        >>> field = whence.fields.load(whence.fields.train(data="digits", **small))
        >>> whence.fields.render_image(field, torch.rand(1, 20, 30), size=60, output="field").pixels.shape
        torch.Size([1, 40, 60])
    """
    original = image if isinstance(image, Tensor) else read(image)
    original = original / 255 if original.dtype == torch.uint8 else original
    if original.ndim != 3 or len(original) != model.channels or len(model.size) != 2:
        raise UserError(
            f"image: this model expects a tensor ({model.channels}, height, width), got {tuple(original.shape)}."
        )
    if output == "render" and model.renderer is None:
        raise UserError("output: this model was trained without a render output. Allowed: field.")
    text = f"{size[1]}x{size[0]}" if isinstance(size, tuple) else str(size)
    height, width = parse_size(text, *original.shape[1:])
    return RenderedImage(original, enlarge(model, original.float(), (height, width), output))
