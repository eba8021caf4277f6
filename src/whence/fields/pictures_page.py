"""Pictures on pages: as they are, side by side, and how far they are from each other."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from whence.fields.baselines import resize
from whence.fields.measures import WINDOW, psnr, ssim
from whence.stats import PSNR

WIDE, FEW, NARROW = 176, 5, 128
"""Of one picture on the page, in CSS pixels: where there are few beside each other, and where there are more."""
LEVELS = 255
MAPPED = 192
"""Points of a map's longer side; finer ones are averaged: a browser draws every one."""


def png(picture: Tensor) -> bytes:
    """(3, height, width), bytes or clipped to [0, 1]."""
    from PIL import Image

    values = picture if picture.dtype == torch.uint8 else (picture.clamp(0, 1) * LEVELS).round().byte()
    buffer = io.BytesIO()
    Image.fromarray(values.permute(1, 2, 0).contiguous().numpy()).save(buffer, "PNG")
    return buffer.getvalue()


def data_uri(picture: Tensor) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(picture)).decode()}"


def pictures_table(columns: Mapping[str, Sequence[Tensor]]) -> str:
    if not columns:
        return "<p class=note>Not a picture.</p>"
    head = "".join(f"<th>{html.escape(name)}" for name in columns)
    width = WIDE if len(columns) <= FEW else NARROW
    body = "".join(
        "<tr>" + "".join(f"<td>{_image(picture, name, width)}" for picture, name in zip(row, columns, strict=True))
        for row in zip(*columns.values(), strict=True)
    )
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _image(picture: Tensor, name: str, width: int) -> str:
    return f'<img width={width} height={width} alt="{html.escape(name)}" src="{data_uri(picture)}">'


# --- against the truth


def quality(said: Tensor, truth: Tensor) -> dict[str, float | None]:
    """Of one picture (3, height, width) in [0, 1]; no SSIM where it is too small for that."""
    alike = float(ssim(said[None], truth[None])) if min(truth.shape[1:]) >= WINDOW else None
    return {"psnr": float(psnr(said[None], truth[None])), "ssim": alike}


def compared(name: str, mine: Mapping[str, Any], bicubic: Mapping[str, Any]) -> str:
    """In words: which of two is closer to the original, of this one picture."""
    gap = mine["psnr"] - bicubic["psnr"]
    if abs(gap) < PSNR.tie_margin:
        verdict = f"Within {PSNR.margin} of each other"
    else:
        verdict = f"{f'The {name}' if gap > 0 else 'Bicubic'} is closer to the original, by {abs(gap):.2f} dB"
    return f"{verdict}. {_told(name, mine)}; {_told('bicubic', bicubic)}."


def _told(name: str, found: Mapping[str, Any]) -> str:
    return f"{name} {found['psnr']:.2f} dB PSNR" + ("" if found["ssim"] is None else f", {found['ssim']:.3f} SSIM")


def difference(one: Tensor, other: Tensor) -> Tensor:
    """(height, width): absolute, mean over colours, in levels of 255; no larger than a map is drawn."""
    found = LEVELS * (one - other).abs().mean(0, keepdim=True)
    height, width = found.shape[1:]
    scale = min(1.0, MAPPED / max(height, width))
    return resize(found[None], (max(1, round(height * scale)), max(1, round(width * scale))), "area")[0, 0]


def difference_map(found: Tensor, most: float) -> go.Figure:
    """most: where the colour scale ends, so that two maps can have the same one."""
    figure = go.Figure()
    figure.add_heatmap(
        z=[[round(value, 1) for value in row] for row in found.tolist()],
        zmin=0,
        zmax=max(most, 1),
        colorscale="Cividis",
        colorbar={"title": {"text": "levels of 255", "side": "top"}, "thickness": 14, "orientation": "h", "y": -0.28},
        hovertemplate="%{z:.1f} levels of 255<extra></extra>",
    )
    hidden = {"visible": False, "constrain": "domain"}
    figure.update_layout(
        xaxis=hidden,
        yaxis={**hidden, "autorange": "reversed", "scaleanchor": "x"},
        height=420,
        margin={"l": 0, "r": 0, "t": 10, "b": 80},
    )
    return figure
