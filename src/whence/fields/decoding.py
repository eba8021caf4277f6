"""The bytes of a picture file as numbers. What is damaged, huge or of no known range is refused, never guessed."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from PIL import Image, ImageFile

MAX_PIXELS = 64_000_000
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""No other is opened: Pillow also knows formats that start programs"""
_PHOTOMETRIC, _BITS = 262, 258
_KEYS_LOST = ("L;2", "L;4", "RGB;16B")
"""Here Pillow compares the transparent colour, as stored, with colours that it has scaled to 8 bits"""
T = TypeVar("T")
_one_at_a_time = threading.Lock()


class Undecodable(Exception):
    """Why, in words that follow the file's name."""


def decode(data: bytes) -> np.ndarray:
    """(1 or 3, height, width) float32 in [0, 1]: the first frame, upright, over white."""
    return _guarded(_decoded, data)


def size(data: bytes) -> tuple[int, int]:
    """Height and width as stored, by the header alone."""
    picture = _guarded(_opened, data)
    return picture.height, picture.width


def _guarded(look: Callable[[bytes], T], data: bytes) -> T:
    try:
        # switches of the whole process are turned
        with _one_at_a_time, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return look(data)
    except Undecodable:
        raise
    except Exception as error:  # on broken bytes, Pillow raises almost anything
        raise Undecodable(f"is damaged, or cut short ({error or type(error).__name__})") from None


def _decoded(data: bytes) -> np.ndarray:
    from PIL import ImageFile, ImageOps

    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        _opened(data).verify()  # checksums, where the format has any; it cannot be decoded after that
        source = _opened(data)
        upright = ImageOps.exif_transpose(source)
        return _deep_grey(upright, source) if upright.mode[0] in "IF" else _colour(upright)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def _opened(data: bytes) -> ImageFile.ImageFile:
    """Only the header is read."""
    from PIL import Image, UnidentifiedImageError

    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise Undecodable("is no picture of a known kind, or its header is damaged") from None
    except Image.DecompressionBombError:
        raise Undecodable(f"has more than {MAX_PIXELS} pixels") from None
    if not 0 < picture.width * picture.height <= MAX_PIXELS:
        raise Undecodable(f"has {picture.width} x {picture.height} pixels, and may have 1 to {MAX_PIXELS}")
    if picture.format == "PNG" and "transparency" in picture.info and picture.tile[0][3] in _KEYS_LOST:
        raise Undecodable("marks one colour as transparent, in a depth where Pillow cannot tell which")
    return picture


def _colour(picture: Image.Image) -> np.ndarray:
    """8 bits, whatever the file has: that is how Pillow decodes colour, and grey with alpha."""
    if not picture.has_transparency_data:
        return _scaled(picture.convert("RGB"))
    picture = picture.convert("LA") if picture.mode == "La" else picture
    values = _scaled(picture.convert("RGBA"))
    colour, alpha = values[:3], values[3]
    colour *= alpha
    colour += 1 - alpha
    return colour


def _scaled(picture: Image.Image) -> np.ndarray:
    values = np.array(np.asarray(picture).transpose(2, 0, 1), dtype=np.float32, order="C")
    values /= 255
    return values


def _deep_grey(picture: Image.Image, source: Image.Image) -> np.ndarray:
    """More than 8 bits. `source`: the picture before it was turned upright, which knows its file."""
    if picture.mode == "I" and source.format not in ("PNG", "PPM"):
        raise Undecodable("holds whole numbers of no known range")
    tags, stored = getattr(source, "tag_v2", {}), np.asarray(picture)
    largest = 1 if picture.mode == "F" else 2 ** min(tags.get(_BITS, (16,))[0], 16) - 1
    values = stored.astype(np.float32) / largest
    if not (values.min() >= 0 and values.max() <= 1):  # also of what is not a number
        raise Undecodable("holds numbers outside of [0, 1]")
    if tags.get(_PHOTOMETRIC) == 0:  # white is stored as 0, which Pillow sees to only up to 8 bits
        values = 1 - values
    if "transparency" in picture.info:
        values[stored == picture.info["transparency"]] = 1
    return values[None]
