"""A picture at another size: by the model, by bicubic, and as it truly is, where that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st
import torch
from torch import Tensor

from whence.app.components import RecentCache
from whence.app.fields.picture import Picture
from whence.app.fields.trained import model_of
from whence.fields.baselines import resize
from whence.fields.config import Output
from whence.fields.decode import enlarge, parse_size
from whence.fields.run import FieldsRun
from whence.store.runs import Store

KEPT = 32
"""Renderings in memory: of 1024×1024 points they are 100 MB."""


@dataclass(frozen=True)
class Rendered:
    """All (3, height, width) in [0, 1], in steps of 1/255."""

    given: Tensor
    made: Tensor
    bicubic: Tensor
    truth: Tensor | None
    """None: the model was given all there is, or more was asked for than there is"""

    @property
    def enlarged(self) -> bool:
        return any(a > b for a, b in zip(self.made.shape[1:], self.given.shape[1:], strict=True))


def rendered(store: Store, run: FieldsRun, picture: Picture, shrunk_by: int, side: int, output: Output) -> Rendered:
    whole = picture.values
    height, width = whole.shape[1:]
    given = _shrunk(whole, (max(1, round(height / shrunk_by)), max(1, round(width / shrunk_by))))
    size = parse_size(str(side), height, width)
    known = shrunk_by > 1 and size[0] <= height and size[1] <= width
    return Rendered(
        given,
        _made(store, run, f"{picture.checksum}/{shrunk_by}", given, size, output),
        _in_bytes(resize(_shrunk(given, size)[None], size, "bicubic")[0]),
        _in_bytes(_shrunk(whole, size)) if known else None,
    )


def _made(store: Store, run: FieldsRun, what: str, given: Tensor, size: tuple[int, int], output: Output) -> Tensor:
    """With a bar while it takes its time. Whoever asks for something else meanwhile ends it there."""
    key = (run.id, tuple(store.folder(run.id).stamp()), what, size, output)
    if (known := _renderings().get(key)) is not None:
        return known.float() / 255
    model, place = model_of(store, run), st.empty()

    def tell(done: int, all_: int) -> None:
        place.progress(done / all_, text=f"Rendering {size[1]}×{size[0]}: {done} of {all_} windows")

    made = enlarge(model, given, size, output, tell)
    place.empty()
    return _renderings().put(key, made).float() / 255


@st.cache_resource(show_spinner=False)
def _renderings() -> RecentCache[Any, Tensor]:
    return RecentCache(KEPT)


def _shrunk(picture: Tensor, size: tuple[int, int]) -> Tensor:
    """Averaged along every axis that is to have fewer points."""
    fewer = tuple(min(a, b) for a, b in zip(picture.shape[1:], size, strict=True))
    return resize(picture[None], fewer, "area")[0]


def _in_bytes(picture: Tensor) -> Tensor:
    return (picture.clamp(0, 1) * 255).round().to(torch.float32) / 255
