"""Images of the view Render: uploaded or packaged, rendered, and compared with the original."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st
import torch
from torch import Tensor

from whence.app.address import choice
from whence.app.components import plain
from whence.app.server import UPLOAD_MIB
from whence.app.views.fields.runs import model_of
from whence.errors import UserError
from whence.fields import images
from whence.fields.baselines import resize
from whence.fields.config import Output
from whence.fields.data import PHOTOS
from whence.fields.decode import enlarge, shrunk, with_longer_side
from whence.fields.metrics import MethodQuality, quality
from whence.fields.run import FieldsRun
from whence.fields.signals import Split
from whence.stats import PSNR
from whence.store.files import digest
from whence.store.runs import Store
from whence.system import packaged_file

SIDE = 256
"""Images are reduced to this longer side in pixels, so that a rendering takes seconds"""
LONGEST_NAME = 60


@dataclass(frozen=True)
class InputImage:
    """An input image and its checksum, which is the key of caches."""

    values: Tensor
    """(3, height, width) in [0, 1]"""
    checksum: str
    whole: tuple[int, int]
    """Height and width before the reduction"""


def choose_image(run: FieldsRun) -> InputImage:
    # Without `type`: a file with another suffix would end the page instead of showing a message.
    brought = st.file_uploader(
        "Your image",
        help=f"PNG, JPEG, WebP, GIF, TIFF, BMP or PNM, up to {UPLOAD_MIB} MiB. It stays in memory "
        "and is not written to disk.",
    )
    if brought is not None:
        name = shown_name(brought.name)
        image = open_image(brought.getvalue(), name)
        st.caption(plain(f"{name}: {_size_text(image)}"))
        return image
    samples = _samples()
    if not samples:
        raise UserError("image: no packaged image is installed. Upload an image, or run: pip install scikit-image")
    sample = choice("fields", "image", "Or a packaged image", {name: name for name in samples})
    path, split = samples[sample]
    image = open_image(path.read_bytes(), sample)
    trained_on = run.data.name == "photos" and split == "train"
    note = f"The run was {'' if trained_on else 'not '}trained on this image."
    st.caption(plain(f"{_size_text(image)} {note}"))
    return image


@st.cache_resource(show_spinner="Opening the image", max_entries=16)
def open_image(data: bytes, _name: str) -> InputImage:
    """Cached by the bytes alone: names do not matter."""
    values = images.read(data, _name)
    height, width = values.shape[1:]
    size = with_longer_side(min(SIDE, max(height, width)), height, width)
    small = torch.cat(
        [shrunk(channel[None], size) for channel in values]
    )  # one channel at a time, because they are large
    return InputImage(small.clamp(0, 1), digest(small.numpy().tobytes())[:16], (height, width))


def shown_name(name: str) -> str:
    """The name of an uploaded file, made printable and short."""
    printable = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    return printable if len(printable) <= LONGEST_NAME else f"{printable[: LONGEST_NAME - 1]}…"


def _size_text(image: InputImage) -> str:
    (height, width), used = image.whole, image.values.shape[1:]
    note = "" if image.whole == used else f", reduced to {used[1]}×{used[0]} for speed"
    return f"{width:,}×{height:,} pixels{note}."


@st.cache_resource(show_spinner=False)
def _samples() -> dict[str, tuple[Path, str]]:
    """By name: the file, and its split in the data `photos`. Test images come first."""
    splits: tuple[Split, ...] = ("test", "validation", "train")
    samples = {}
    for split in splits:
        for (package, folder), names in PHOTOS[split].items():
            for name in names:
                with suppress(UserError):
                    file = packaged_file(package, f"{folder}/{name}", field="image", what=name)
                    samples[Path(name).stem] = file, split
    return samples


# --- rendered

CACHED = 32
"""Renderings in memory: of 1024×1024 pixels they are 100 MB."""


@dataclass(frozen=True)
class RenderedImage:
    """All (3, height, width) in [0, 1], in steps of 1/255."""

    given: Tensor
    output: Tensor
    bicubic: Tensor
    truth: Tensor | None
    """None if the original at this resolution is not known"""

    @property
    def enlarged(self) -> bool:
        return any(a > b for a, b in zip(self.output.shape[1:], self.given.shape[1:], strict=True))


def render_image(
    store: Store, run: FieldsRun, image: InputImage, shrunk_by: int, side: int, output: Output
) -> RenderedImage:
    whole = image.values
    height, width = whole.shape[1:]
    given = shrunk(whole, (max(1, round(height / shrunk_by)), max(1, round(width / shrunk_by))))
    size = with_longer_side(side, height, width)
    known = shrunk_by > 1 and size[0] <= height and size[1] <= width
    return RenderedImage(
        given,
        _output(store, run, f"{image.checksum}/{shrunk_by}", given, size, output),
        _in_bytes(resize(shrunk(given, size)[None], size, "bicubic")[0]),
        _in_bytes(shrunk(whole, size)) if known else None,
    )


def _output(store: Store, run: FieldsRun, what: str, given: Tensor, size: tuple[int, int], output: Output) -> Tensor:
    """Rendered with a progress bar, unless cached. Another request interrupts it."""
    key = (run.id, tuple(store.folder(run.id).stamp()), what, size, output)
    known = _rendered(key)
    if not known:
        model, place = model_of(store, run), st.empty()

        def on_progress(done: int, total: int) -> None:
            place.progress(done / total, text=f"Rendering {size[1]}×{size[0]}: {done} of {total} windows")

        known[:] = [enlarge(model, given, size, output, on_progress)]
        place.empty()
    return known[0].float() / 255


@st.cache_resource(show_spinner=False, max_entries=CACHED)
def _rendered(key: tuple[object, ...]) -> list[Tensor]:
    """A cache entry, filled by the caller: inside of the cached function the progress bar would be recorded."""
    return []


def _in_bytes(image: Tensor) -> Tensor:
    return (image.clamp(0, 1) * 255).round().to(torch.float32) / 255


# --- compared with the original

LEVELS = 255
MAP_SIDE = 192
"""Longer side of difference maps in pixels; larger ones are averaged, because browsers draw every pixel"""


def compared(name: str, made: Tensor, bicubic: Tensor, truth: Tensor) -> str:
    """A sentence on which of two is closer to the original of this image."""
    mine, other = quality(made[None], truth[None]), quality(bicubic[None], truth[None])
    gap = mine.psnr - other.psnr
    if abs(gap) < PSNR.tie_margin:
        verdict = f"{name.capitalize()} and bicubic are within {PSNR.margin} of each other"
    else:
        verdict = f"{f'The {name}' if gap > 0 else 'Bicubic'} is closer to the original by {abs(gap):.2f} dB"
    return f"{verdict}. {_quality_text(name, mine)}; {_quality_text('bicubic', other)}."


def _quality_text(name: str, quality: MethodQuality) -> str:
    return f"{name} {quality.psnr:.2f} dB PSNR" + ("" if quality.ssim is None else f", {quality.ssim:.3f} SSIM")


def difference(one: Tensor, other: Tensor) -> Tensor:
    """(height, width): absolute difference, mean over channels, in levels of 255; at most `MAP_SIDE` pixels."""
    levels = LEVELS * (one - other).abs().mean(0, keepdim=True)
    height, width = levels.shape[1:]
    return shrunk(levels, with_longer_side(min(MAP_SIDE, max(height, width)), height, width))[0]


def difference_map(levels: Tensor, most: float) -> go.Figure:
    """most: the end of the colour scale, so that two maps can share one."""
    figure = go.Figure()
    figure.add_heatmap(
        z=[[round(value, 1) for value in row] for row in levels.tolist()],
        zmin=0,
        zmax=max(most, 1),
        colorscale="Cividis",
        colorbar={"title": {"text": "levels of 255", "side": "top"}, "thickness": 14, "orientation": "h", "y": -0.28},
        hovertemplate="%{z:.1f} levels of 255<extra></extra>",
    )
    invisible = {"visible": False, "constrain": "domain"}
    figure.update_layout(
        xaxis=invisible,
        yaxis={**invisible, "autorange": "reversed", "scaleanchor": "x"},
        height=420,
        margin={"l": 0, "r": 0, "t": 10, "b": 80},
    )
    return figure
