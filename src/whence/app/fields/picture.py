"""The picture that is looked at: brought by the reader, or one that comes with a package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st
import torch
from torch import Tensor

from whence.app.address import addressed
from whence.app.components import plain
from whence.app.server import UPLOAD_MIB
from whence.errors import UserError
from whence.fields import images
from whence.fields.baselines import resize
from whence.fields.data.photos import FILES
from whence.fields.run import FieldsRun
from whence.store.files import digest
from whence.system import packaged_file

SIDE = 256
"""Points of the longer side that are kept: more would make every answer slow."""
MOST_POINTS = 32_000_000
"""Of an upload: what needs about a gigabyte while it is shrunk."""
LONGEST_NAME = 60


@dataclass(frozen=True)
class Picture:
    """What is used of it, and the checksum by which that is known."""

    values: Tensor
    """(3, height, width) in [0, 1]"""
    checksum: str
    whole: tuple[int, int]
    """Height and width before it was shrunk"""


def chosen(run: FieldsRun) -> Picture:
    # Not narrowed down by `type`: a name that does not end as it asks for would end the page, not get a message.
    brought = st.file_uploader(
        "Your picture",
        help=f"PNG, JPEG, WebP, GIF, TIFF, BMP or PNM, up to {UPLOAD_MIB} MiB. It stays in the memory of this machine "
        "and is written nowhere.",
    )
    if brought is not None:
        name = shown_name(brought.name)
        picture = opened(brought.getvalue(), name)
        st.caption(plain(f"{name}: {_told(picture)}"))
        return picture
    samples = _samples()
    if not samples:
        raise UserError("picture: none is here to try. Allowed: your own.", field="picture")
    sample = addressed(
        "fields",
        "picture",
        list(samples),
        next(iter(samples)),
        lambda key: st.selectbox("Or one that is here", list(samples), key=key),
    )
    path, split = samples[sample]
    picture = opened(path.read_bytes(), sample)
    known = run.data.name == "photos" and split == "train"
    seen = "This run was trained on it." if known else "This run was not trained on it."
    st.caption(plain(f"{_told(picture)} {seen}"))
    return picture


def opened(data: bytes, name: str) -> Picture:
    """Refused by its header where it is too large, before room is made for it."""
    height, width = images.read_size(data, name)
    if height * width > MOST_POINTS:
        raise UserError(
            f"input: {name!r} has {width:,}×{height:,} points. Allowed here: {MOST_POINTS // 10**6} million.",
            field="input",
        )
    return _opened(data, name)


@st.cache_resource(show_spinner="Opening the picture", max_entries=16)
def _opened(data: bytes, _name: str) -> Picture:
    """Kept by the bytes alone: names do not matter."""
    values = images.read(data, _name)
    height, width = values.shape[1:]
    scale = min(1.0, SIDE / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    # one by one, because they are large
    shrunk = torch.cat([resize(channel[None, None], size, "area")[0] for channel in values])
    return Picture(shrunk.clamp(0, 1), digest(shrunk.numpy().tobytes())[:16], (height, width))


def shown_name(name: str) -> str:
    """Of a file, as somebody else has written it: for the eye only."""
    seen = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    return seen if len(seen) <= LONGEST_NAME else f"{seen[: LONGEST_NAME - 1]}…"


def _told(picture: Picture) -> str:
    height, width = picture.whole
    kept = picture.values.shape[1:]
    if (height, width) == tuple(kept):
        return f"{width:,}×{height:,} points."
    return f"{width:,}×{height:,} points, shrunk to {kept[1]}×{kept[0]}, so that answers take seconds."


@st.cache_resource(show_spinner=False)
def _samples() -> dict[str, tuple[Path, str]]:
    """By name: the file, and whether fields of photographs are trained on it. Those for reporting come first."""
    found = {}
    for split in ("test", "validation", "train"):
        for (package, folder), name in FILES[split]:
            try:
                found[Path(name).stem] = packaged_file(package, f"{folder}/{name}", field="picture", what=name), split
            except UserError:
                continue
    return found
