"""Emoji, drawn sharply: the images of a colour font."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from whence.errors import UserError
from whence.fields.data.base import SPLITS, FieldData, Split, below, sixths

PLACES = (
    "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf",
    "/usr/share/fonts/noto/NotoColorEmoji.ttf",
    "/usr/share/fonts/google-noto-color-emoji-fonts/NotoColorEmoji.ttf",
)
SIDE = 128


class Emoji(FieldData):
    """Some 3,900 emoji of 128×128 pixels over white, from the font Noto Color Emoji (bitmaps).

    Of every six, by code, four to train on, one to choose designs by, one to report. Those that begin alike, as all
    skin tones of a hand, stay together.
    """

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=8, le=128, description="pixels per side of the input; must divide 128")] = 32,
        font: Annotated[str, Field(description="the font's file, if it is not where Linux keeps it")] = "",
    ) -> None:
        if SIDE % size:
            raise UserError(f"data: size {size} does not divide {SIDE}. Allowed: 8, 16, 32, 64, 128.")
        super().__init__(2, 3, size, SIDE // size)
        self.font = font

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        path = next((path for path in map(Path, [self.font] if self.font else PLACES) if path.is_file()), None)
        if path is None:
            raise UserError(
                "data: emoji come with the font Noto Color Emoji, which is not here. Install Debian's "
                "fonts-noto-color-emoji, or name the file: emoji:font=FILE.ttf"
            )
        files = _files(path)[split]
        return torch.stack([_decoded(files[below(len(files), generator)]) for _ in range(rows)]).float() / 255


@functools.cache
def _files(font: Path) -> dict[Split, list[bytes]]:
    """PNGs, each once."""
    glyphs, parents = _opened(font)
    families: dict[str, list[bytes]] = {}
    for file, name in {file: name for name, file in reversed(glyphs.items())}.items():
        families.setdefault(family(name, parents), []).append(file)
    return {split: [file for name in sixths(sorted(families), split) for file in families[name]] for split in SPLITS}


def family(glyph: str, parents: Mapping[str, str]) -> str:
    """The emoji that a sequence begins with."""
    while glyph in parents:
        glyph = parents[glyph]
    return glyph


def _opened(font: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """The PNG of every glyph, and of those that stand for a sequence, what it begins with."""
    try:
        from fontTools.ttLib import TTFont, TTLibError
    except ImportError:
        raise UserError("data: emoji need fontTools. Run: pip install fonttools") from None
    try:
        with TTFont(font, lazy=True) as opened:
            bitmaps = opened["CBDT"].strikeData[0]
            glyphs = {name: bitmaps[name].imageData for name in sorted(bitmaps)}
            lookups = opened["GSUB"].table.LookupList.Lookup
            tables = [getattr(table, "ExtSubTable", table) for lookup in lookups for table in lookup.SubTable]
            parents = {
                made.LigGlyph: first
                for table in tables
                for first, sequences in getattr(table, "ligatures", {}).items()
                for made in sequences
                if made.LigGlyph != first
            }
            return glyphs, parents
    except (TTLibError, KeyError, OSError, AttributeError):
        raise UserError(
            f"data: {str(font)!r} holds no bitmaps. Allowed: Noto Color Emoji with its table CBDT."
        ) from None


@functools.lru_cache(maxsize=4096)
def _decoded(file: bytes) -> Tensor:
    """In bytes, the middle 128×128, over white."""
    from whence.fields.images import read

    image = read(file, "emoji")
    before = [int((SIDE - count) / 2) for count in image.shape[1:]]  # below 0: cut off
    after = [SIDE - count - space for count, space in zip(image.shape[1:], before, strict=True)]
    image = functional.pad(image, (before[1], after[1], before[0], after[0]), value=1.0)
    return (image * 255).round().to(torch.uint8)
