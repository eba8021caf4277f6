"""Signals to train fields on: packaged data, synthetic data, and a user's own files."""

from __future__ import annotations

import functools
import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from whence.errors import UserError
from whence.fields.baselines import grid
from whence.fields.images import image_files, read, read_size
from whence.fields.signals import SPLITS, Crops, FieldData, ImageData, Split, below, sixths
from whence.inputs import file_digest, open_input
from whence.recordings import read_npy, read_ts
from whence.registry import Choice, Registry
from whence.store.files import digest
from whence.system import packaged_file

DATA: Registry[FieldData] = Registry(__name__, FieldData)
DataChoice = Annotated[Choice[FieldData], DATA]
FACTOR = Field(ge=1, le=8, description="resolution of the target relative to the input")
IMAGE_SIZE = Field(ge=8, le=64, description="pixels per side of the input")
IMAGE, LEARN = ("scikit-image", "skimage/data"), ("scikit-learn", "sklearn/datasets/images")
PHOTOS: dict[Split, dict[tuple[str, str], tuple[str, ...]]] = {
    "train": {
        IMAGE: ("astronaut.png", "coffee.png", "hubble_deep_field.jpg", "ihc.png", "motorcycle_left.png"),
        LEARN: ("china.jpg",),
    },
    "validation": {IMAGE: ("retina.jpg", "rocket.jpg")},
    "test": {IMAGE: ("chelsea.png",), LEARN: ("flower.jpg",)},
}
EMOJI_FONTS = (
    "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf",
    "/usr/share/fonts/noto/NotoColorEmoji.ttf",
    "/usr/share/fonts/google-noto-color-emoji-fonts/NotoColorEmoji.ttf",
)
EMOJI_SIDE, LARGEST_EMOJI = 128, 512
LARGEST_FONT = 2**26
"""Bytes"""
OPEN_TYPE = (b"\0\1\0\0", b"OTTO", b"true")
"""Other formats are refused: web fonts may decompress to any size"""
KINDS = {1: "length", 2: "height, width", 3: "depth, height, width"}


class Photos(ImageData):
    """Ten colour photographs: six for training, two for validation, two for test."""

    def __init__(self, *, size: Annotated[int, IMAGE_SIZE] = 32, factor: Annotated[int, FACTOR] = 4) -> None:
        super().__init__(size, factor)

    def files(self, split: Split) -> list[Path]:
        return [
            packaged_file(package, f"{folder}/{name}", field="data", what=name)
            for (package, folder), names in PHOTOS[split].items()
            for name in names
        ]


class Folder(ImageData):
    """A directory of images, in order of name: of every six, four for training, one for validation, one for test."""

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description="directory of images")] = "",
        size: Annotated[int, IMAGE_SIZE] = 32,
        factor: Annotated[int, FACTOR] = 4,
        checksum: Annotated[
            str, Field(description="of the images; filled in automatically, so that changed images are a new run")
        ] = "",
    ) -> None:
        super().__init__(size, factor)
        self.path, self.checksum = path, checksum

    def checksum_now(self) -> str:
        return _checksum(tuple((path, path.stat().st_mtime_ns) for path in image_files(self.path)))

    def files(self, split: Split) -> list[Path]:
        return sixths(self._files, split)

    @functools.cached_property
    def _files(self) -> list[Path]:
        """Listed on first use: a trained model can be loaded without them."""
        files = image_files(self.path)
        if len(files) < 3:
            raise UserError(
                f"data: expected 3 or more images in {self.path!r}, because some are held out; got {len(files)}."
            )
        if self.checksum not in ("", self.checksum_now()):
            raise UserError(
                f"data: the images in {self.path!r} have changed since this run was configured. Restore them."
            )
        return files


@functools.lru_cache(maxsize=4)
def _checksum(files: tuple[tuple[Path, int], ...]) -> str:
    return digest("".join(f"{path.name} {file_digest(path, 'data')}\n" for path, _ in files))[:16]


class Emoji(FieldData):
    """About 3,900 emoji of 128×128 pixels on white, from the bitmap font Noto Color Emoji.

    Of every six, by code, four for training, one for validation, one for test. Variants of one emoji, such as skin
    tones, stay in one split.
    """

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=8, le=128, description="pixels per side of the input; must divide 128")] = 32,
        font: Annotated[str, Field(description="font file; empty: the usual places on Linux")] = "",
    ) -> None:
        if EMOJI_SIDE % size:
            raise UserError(f"data: size {size} does not divide {EMOJI_SIDE}. Allowed: 8, 16, 32, 64, 128.")
        super().__init__(2, 3, size, EMOJI_SIDE // size)
        self.font = font

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        fonts = [self.font] if self.font else EMOJI_FONTS
        path = next((Path(font) for font in fonts if os.path.isfile(font)), None)
        if path is None:
            raise UserError(
                "data: the font Noto Color Emoji was not found. Install it (Debian: fonts-noto-color-emoji), or name "
                "its file:  emoji:font=FILE.ttf"
            )
        files = emoji_files(path)[split]
        return torch.stack([emoji_image(files[below(len(files), generator)]) for _ in range(rows)]).float() / 255


@functools.cache
def emoji_files(font: Path) -> dict[Split, list[bytes]]:
    """By split, the PNG files in the font, without duplicates."""
    glyphs, parents = _opened_font(font)
    families: dict[str, list[bytes]] = {}
    for file, name in {file: name for name, file in reversed(glyphs.items())}.items():
        families.setdefault(family(name, parents), []).append(file)
    return {split: [file for name in sixths(sorted(families), split) for file in families[name]] for split in SPLITS}


def family(glyph: str, parents: Mapping[str, str]) -> str:
    """The emoji that a sequence begins with."""
    seen = set[str]()
    while glyph in parents and glyph not in seen:
        seen.add(glyph)
        glyph = parents[glyph]
    return glyph


def _opened_font(font: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """The PNG of every glyph, and for every glyph of a sequence the first glyph of that sequence."""
    try:
        from fontTools.ttLib import TTFont, TTLibError
    except ImportError:
        raise UserError("data: emoji need fontTools. Run: pip install fonttools") from None
    try:
        with open_input(font, "data", LARGEST_FONT) as file:
            if file.peek(4)[:4] not in OPEN_TYPE:
                raise TTLibError
            opened = TTFont(file, lazy=True)
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
    except UserError:
        raise
    except Exception:  # fontTools validates little, and raises almost anything
        raise UserError(
            f"data: expected Noto Color Emoji with bitmaps (table CBDT), got {str(font)!r}. Name another font file."
        ) from None


@functools.lru_cache(maxsize=4096)
def emoji_image(file: bytes) -> Tensor:
    """The central 128×128 pixels on white, as bytes."""
    if max(read_size(file, "emoji")) > LARGEST_EMOJI:
        raise UserError(
            f"data: expected emoji of at most {LARGEST_EMOJI} pixels per side, got a larger one. Name another font."
        )
    image = read(file, "emoji")
    before = [int((EMOJI_SIDE - count) / 2) for count in image.shape[1:]]  # below 0: cut off
    after = [EMOJI_SIDE - count - space for count, space in zip(image.shape[1:], before, strict=True)]
    image = functional.pad(image, (before[1], after[1], before[0], after[0]), value=1.0)
    return (image * 255).round().to(torch.uint8)


class Digits(FieldData):
    """1,797 grey digits of 8×8 pixels: of every six, four for training, one for validation, one for test."""

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=4, le=8, multiple_of=4, description="pixels per side of the input: 4 or 8")] = 8,
    ) -> None:
        super().__init__(2, 1, size, 8 // size)

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        file = packaged_file("scikit-learn", "sklearn/datasets/data/digits.csv.gz", field="data", what="digits")
        digits = sixths(_digits(file), split)
        return torch.stack([digits[place] for place in torch.randint(len(digits), (rows,), generator=generator)])


@functools.cache
def _digits(path: Path) -> tuple[Tensor, ...]:
    """Each (1, 8, 8) from 0 to 1."""
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)  # also decompresses
    return torch.from_numpy(table[:, :64] / 16).view(-1, 1, 8, 8).unbind()


class Outlines(Crops):
    """442 outlines of leaves, 427 samples each: the published 200 for training (every fifth for validation) and 242 for
    test."""

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=8, le=256, description="samples of the input")] = 64,
        factor: Annotated[int, FACTOR] = 4,
    ) -> None:
        if size * factor > 427:
            raise UserError(
                f"data: expected size × factor of at most 427 (the length of an outline), got {size * factor}."
            )
        super().__init__(1, 1, size, factor)

    def signals(self, split: Split) -> Sequence[Tensor]:
        files = [
            packaged_file("aeon", f"aeon/datasets/data/OSULeaf/OSULeaf_{part}.ts", field="data", what="outlines")
            for part in ("TRAIN", "TEST")
        ]
        return _read_outlines(*files)[split]


@functools.cache
def _read_outlines(training: Path, test: Path) -> dict[Split, list[Tensor]]:
    """Outlines are published standardized; the range of ±5 standard deviations is mapped to [0, 1]."""
    known, rest = ([(one / 10 + 0.5).clamp(0, 1) for one in read_ts(path)] for path in (training, test))
    return {"train": [one for i, one in enumerate(known) if i % 5], "validation": known[::5], "test": rest}


class Arrays(Crops):
    """A .npy file of signals (signals, length …).

    Of every six signals, four for training, one for validation, one for test. The range of the training signals is
    mapped to [.05, .95] per channel; values outside of [0, 1] are clipped.
    """

    def __init__(
        self,
        *,
        path: Annotated[str, Field(description=".npy file")] = "",
        axes: Annotated[int, Field(ge=1, le=3, description="axes of one signal: 1 series, 2 images, 3 volumes")] = 1,
        channels: Annotated[
            int, Field(ge=0, le=64, description="channels, on the last axis of the file; 0: no such axis")
        ] = 0,
        size: Annotated[int, Field(ge=4, le=4096, description="pixels per axis of the input")] = 32,
        factor: Annotated[int, FACTOR] = 4,
        checksum: Annotated[
            str, Field(description="of the file; filled in automatically, so that a changed file is a new run")
        ] = "",
    ) -> None:
        super().__init__(axes, channels or 1, size, factor)
        self.path, self.checksum, self.last = Path(path), checksum, channels

    def checksum_now(self) -> str:
        self.signals("train")  # raises UserError for another kind of file
        return _digest(self.path, self.path.stat().st_mtime_ns)

    def signals(self, split: Split) -> Sequence[Tensor]:
        changed = self.path.stat().st_mtime_ns if os.path.isfile(self.path) else 0
        signals = _read_arrays(self.path, changed, self.axes, self.last)
        size = signals["train"][0].shape[1:]
        if min(size) < self.true[0]:
            raise UserError(
                f"data: expected signals of {self.true[0]} pixels per axis or more (size × factor), got "
                f"{'×'.join(map(str, size))}. Set a smaller size or factor."
            )
        if self.checksum and self.checksum != _digest(self.path, changed):
            raise UserError(
                f"data: {str(self.path)!r} has changed since this run was configured. Restore it or train again."
            )
        return signals[split]


@functools.lru_cache(maxsize=4)
def _digest(path: Path, _changed: int) -> str:
    return file_digest(path, "data")[:16]


@functools.lru_cache(maxsize=4)
def _read_arrays(path: Path, _changed: int, axes: int, channels: int) -> dict[Split, list[Tensor]]:
    """Each (channels, *size)"""
    shape = f"(signals, {KINDS[axes]}{', channels' if channels else ''})"
    values = read_npy(path, {axes + 1 + bool(channels): shape})
    if channels and values.shape[-1] != channels:
        raise UserError(
            f"data: expected channels={values.shape[-1]}, the last axis of {str(path)!r}; got channels={channels}."
        )
    if len(values) < 3 or not values.numel():
        raise UserError(
            f"data: expected 3 or more signals in {str(path)!r}, because some are held out; got {len(values)}."
        )
    values = values.movedim(-1, 1) if channels else values[:, None]
    splits: dict[Split, list[Tensor]] = {split: sixths(values.unbind(), split) for split in SPLITS}
    ends = torch.stack([torch.stack(one.flatten(1).aminmax(dim=1)) for one in splits["train"]])
    low, high = (end.view(-1, *[1] * axes) for end in (ends[:, 0].amin(0), ends[:, 1].amax(0)))
    if (low == high).any():
        raise UserError(f"data: a channel of {str(path)!r} is constant. Remove it, or name a file whose values vary.")
    return {
        split: [(0.05 + 0.9 * (one - low) / (high - low)).clamp(0, 1) for one in signals]
        for split, signals in splits.items()
    }


class Volume(FieldData):
    """Synthetic volumes: random Gaussian blobs of several sizes, drawn anew for every batch."""

    held_out_name = ""

    def __init__(
        self,
        *,
        size: Annotated[int, Field(ge=8, le=32, description="pixels per side of the input")] = 16,
        factor: Annotated[int, Field(ge=1, le=4, description="resolution of the target relative to the input")] = 2,
        blobs: Annotated[int, Field(ge=1, le=64, description="number of blobs per volume")] = 12,
    ) -> None:
        super().__init__(3, 1, size, factor)
        self.blobs = blobs

    def draw(self, generator: torch.Generator, rows: int, split: Split) -> Tensor:
        def uniform(*shape: int) -> Tensor:
            return torch.rand(rows, self.blobs, *shape, generator=generator)

        middles, widths, heights = uniform(3), 0.03 * 5 ** uniform(1), uniform()
        at = grid(self.true)
        values = []
        for middle, width, height in zip(
            middles, widths, heights, strict=True
        ):  # one at a time, because distances need much memory
            squares = torch.cdist(at, middle).square()  # pixels, blobs
            values.append((torch.exp(-squares / (2 * width.T.square())) * height).sum(-1))
        return torch.stack(values).clamp(max=1).view(rows, 1, *self.true)
