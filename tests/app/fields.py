"""A field of colour pictures that is trained in a blink, and pictures to render with it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from tests.app.browse import App
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.fields.run import FieldsRun

TINY: dict[str, Any] = {
    "data": "photos:factor=2",
    "model": {"patch": 8, "lps": 4, "d_model": 8, "heads": 2, "layers": 1, "render_width": 4, "render_layers": 1},
    "training": {"steps": 3, "batch_size": 2, "pixels": 16, "evaluations": 1, "crops": 2, "warmup": 0},
}


def trained(app: App) -> FieldsRun:
    """As a run that was trained in a terminal is: without a job of the app."""
    run = FieldsRun.read(TINY)
    status = execute(run, app.store, ExecutionOptions(threads=1, device="cpu"))
    assert status.state == "finished"
    return run


def waves(height: int = 64, width: int = 96) -> np.ndarray:
    """Something with edges and colours, in bytes."""
    y, x = np.mgrid[:height, :width]
    colours = [np.sin(x / 3 + y / 7), np.cos(x / 5 - y / 4), np.sin(x * y / 200)]
    return (127.5 * (1 + np.stack(colours, -1))).astype(np.uint8)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
