"""The font Noto Color Emoji: its bitmaps, and which of them belong together."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from whence.errors import UserError
from whence.fields.images import read
from whence.fields.signals import SPLITS, Split, sixths

PLACES = (
    "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf",
    "/usr/share/fonts/noto/NotoColorEmoji.ttf",
    "/usr/share/fonts/google-noto-color-emoji-fonts/NotoColorEmoji.ttf",
)
SIDE = 128


@functools.cache
def files(font: Path) -> dict[Split, list[bytes]]:
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
def decoded(file: bytes) -> Tensor:
    """In bytes, the middle 128×128, over white."""
    image = read(file, "emoji")
    before = [int((SIDE - count) / 2) for count in image.shape[1:]]  # below 0: cut off
    after = [SIDE - count - space for count, space in zip(image.shape[1:], before, strict=True)]
    image = functional.pad(image, (before[1], after[1], before[0], after[0]), value=1.0)
    return (image * 255).round().to(torch.uint8)
