"""Read and write image files as tensors. Values are as stored: no colour profile is applied.

Damaged files, very large files and values of unknown range raise `UserError`.
"""

from __future__ import annotations

import base64
import io
import os.path
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from whence.errors import UserError, not_allowed
from whence.inputs import read_input
from whence.store import disk
from whence.system import memory_bytes

if TYPE_CHECKING:
    from PIL import Image, ImageFile

MAX_PIXELS = 25_000_000
MAX_BYTES = 2**28
"""Enough for `MAX_PIXELS` of four channels of 16 bits"""
MAX_SCANS, MAX_CHUNKS, MAX_TEXT_BYTES = 100, 100_000, 2**23
"""Limits: scans of a JPEG, each of which may visit all pixels in a few bytes; chunks of a PNG; bytes of text formats"""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Other formats are refused: some of Pillow's readers start programs"""
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    ".png": ("PNG", {}),
    ".jpg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".webp": ("WEBP", {"lossless": True}),
    ".tif": ("TIFF", {}),
    ".tiff": ("TIFF", {}),
    ".bmp": ("BMP", {}),
}
BYTES_PER_PIXEL = {".webp": 50}
"""Memory while writing; 16 for other formats"""
PHOTOMETRIC, BITS = 262, 258
"""Tags of TIFF"""
LOST_TRANSPARENCY = ("L;2", "L;4", "RGB;16B")
"""Raw modes in which Pillow compares the stored transparent colour with colours that it has scaled to 8 bits"""
Source = str | Path | bytes
T = TypeVar("T")
_one_at_a_time = threading.Lock()


class UndecodableImageError(Exception):
    """Its text is a predicate that follows the name of the file."""


def read(source: Source, name: str = "") -> Tensor:
    """(3, height, width) float32 in [0, 1]: the first frame, upright, on white. `name`: of an upload, for messages.

    Grey images keep up to 16 bits, colour images 8.
    """
    return _over_white(_load(source, name, _decode)).expand(3, -1, -1).contiguous()


def read_size(source: Source, name: str = "") -> tuple[int, int]:
    """Height and width as stored, from the header alone."""
    image = _load(source, name, _open)
    return image.height, image.width


def _load(source: Source, name: str, decode: Callable[[bytes], T]) -> T:
    need_pillow("input")
    data = source if isinstance(source, bytes) else read_input(source, "input", MAX_BYTES)
    try:
        _check_time(data)
        # these switches affect the whole process
        with _one_at_a_time, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return decode(data)
    except UndecodableImageError as error:
        reason = str(error)
    except Exception as error:  # on broken bytes, Pillow raises almost anything
        reason = f"is damaged or truncated ({error or type(error).__name__})"
    name = name or ("upload" if isinstance(source, bytes) else str(source))
    raise UserError(f"input: {name!r} {reason}. Allowed: a complete image file ({', '.join(FORMATS)}).")


def write(path: str | Path, image: Tensor) -> None:
    """Write (1 or 3, height, width), bytes or clipped to [0, 1], in 8 bits; the suffix decides the format."""
    path = check_out(path)
    if image.ndim != 3 or image.shape[0] not in (1, 3) or not image.numel():
        raise ValueError(f"expected an image of shape (1 or 3, height, width), got {tuple(image.shape)}")
    if not torch.isfinite(image).all():
        raise UserError(
            "out: expected finite values, got NaN or infinity in the rendered image. Render with another run."
        )
    try:
        disk.write_output(path, encode(image, path.suffix.lower()))
    except (OSError, ValueError) as error:
        raise UserError(f"out: {str(path)!r} cannot be written ({error}).") from None


def encode(image: Tensor, suffix: str = ".png") -> bytes:
    """(1 or 3, height, width), bytes or clipped to [0, 1], as the content of a file."""
    from PIL import Image

    values = image.detach().cpu()
    values = values if values.dtype == torch.uint8 else values.float().clamp(0, 1).mul(255).round().to(torch.uint8)
    array = (values[0] if len(values) == 1 else values.permute(1, 2, 0)).contiguous().numpy()
    kind, options = WRITTEN[suffix]
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind, **options)
    return buffer.getvalue()


def data_uri(image: Tensor) -> str:
    return f"data:image/png;base64,{base64.b64encode(encode(image)).decode()}"


def check_out(path: str | Path, pixels: int = 1) -> Path:
    """Check, before any work, that an image of so many pixels can be written there."""
    need_pillow("out")
    path = Path(path)
    if path.suffix.lower() not in WRITTEN:
        raise not_allowed("out", path.suffix, list(WRITTEN))
    if not os.path.isdir(path.parent):
        raise UserError(f"out: {str(path.parent)!r} is not a directory. Create it, or name another file.")
    needed, there = pixels * BYTES_PER_PIXEL.get(path.suffix.lower(), 16), memory_bytes()
    if needed > there / 2:
        raise UserError(
            f"size: {pixels:,} pixels in {path.suffix} need {needed / 2**30:.1f} GiB; at most half of the "
            f"{there / 2**30:.1f} GiB of this machine are used. Choose a smaller size or another format."
        )
    return path


def image_files(folder: str | Path) -> list[Path]:
    """The image files directly in a directory, sorted by name, without hidden files."""
    try:
        if not str(folder) or not os.path.isdir(folder):
            raise UserError(f"data: {str(folder)!r} is not a directory.")
        visible = [path for path in Path(folder).iterdir() if not path.name.startswith(".")]
        files = sorted(path for path in visible if path.suffix.lower() in SUFFIXES and path.is_file())
    except OSError as error:
        raise UserError(f"data: {str(folder)!r} cannot be read ({error.strerror or error}).") from None
    if not files:
        raise UserError(f"data: no image found in {str(folder)!r}. Allowed: files that end in {', '.join(SUFFIXES)}.")
    return files


def need_pillow(field: str) -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise UserError(
            f"{field}: reading and writing images requires Pillow. Install it with: pip install pillow"
        ) from None


def _check_time(data: bytes) -> None:
    """Refuse files of few bytes that keep a decoder busy for minutes."""
    if data.startswith(b"\xff\xd8") and data.count(b"\xff\xda") > MAX_SCANS:
        raise UndecodableImageError(f"has more than {MAX_SCANS} scans")
    if data.startswith((b"P1", b"P2", b"P3")) and len(data) > MAX_TEXT_BYTES:
        raise UndecodableImageError(f"has more than {MAX_TEXT_BYTES} bytes in a text format")
    place, chunks = 8, 0
    while data.startswith(b"\x89PNG") and place < len(data):
        place, chunks = place + 12 + int.from_bytes(data[place : place + 4], "big"), chunks + 1
        if chunks > MAX_CHUNKS:
            raise UndecodableImageError(f"has more than {MAX_CHUNKS} chunks")


def _decode(data: bytes) -> np.ndarray:
    """The first frame, upright: (1, height, width) float32 in [0, 1], or (3 or 4, height, width) in bytes."""
    from PIL import ImageFile, ImageOps

    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        _open(data).verify()  # checksums, where the format has any; it cannot be decoded after that
        source = _open(data)
        upright = ImageOps.exif_transpose(source)
        return _deep_grey(upright, source) if upright.mode[0] in "IF" else _colour(upright)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def _open(data: bytes) -> ImageFile.ImageFile:
    """Only the header is read."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise UndecodableImageError("is not an image of a supported format, or its header is damaged") from None
    except Image.DecompressionBombError:
        raise UndecodableImageError(f"has more than {MAX_PIXELS} pixels") from None
    if not 0 < image.width * image.height <= MAX_PIXELS:
        raise UndecodableImageError(f"has {image.width} x {image.height} pixels; expected 1 to {MAX_PIXELS}")
    if image.format == "PNG" and "transparency" in image.info and image.tile[0][3] in LOST_TRANSPARENCY:
        raise UndecodableImageError(
            "marks one colour as transparent, at a bit depth for which Pillow does not report the colour"
        )
    return image


def _colour(image: Image.Image) -> np.ndarray:
    """In 8 bits, as Pillow decodes colour, and grey with alpha."""
    image = image.convert("LA") if image.mode == "La" else image
    image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    return np.asarray(image).transpose(2, 0, 1)


def _over_white(values: np.ndarray) -> Tensor:
    """Composite on white. Called after Pillow's copies are freed, because these are the largest."""
    if values.dtype != np.uint8:
        return torch.from_numpy(values)
    colour = values[:3].astype(np.float32, order="C")
    colour /= 255
    if len(values) == 4:
        alpha = values[3].astype(np.float32)
        alpha /= 255
        colour *= alpha
        colour += 1 - alpha
    return torch.from_numpy(colour)


def _deep_grey(image: Image.Image, source: Image.Image) -> np.ndarray:
    """Grey in more than 8 bits. `source`: the image before rotation, which has the tags of the file."""
    if image.mode == "I" and source.format not in ("PNG", "PPM"):
        raise UndecodableImageError("holds integers of unknown range")
    tags, stored = getattr(source, "tag_v2", {}), np.asarray(image)
    largest = 1 if image.mode == "F" else 2 ** min(tags.get(BITS, (16,))[0], 16) - 1
    values = stored.astype(np.float32) / largest
    if not (values.min() >= 0 and values.max() <= 1):  # also refuses NaN
        raise UndecodableImageError("holds values outside of [0, 1]")
    if tags.get(PHOTOMETRIC) == 0:  # white is stored as 0, which Pillow handles up to 8 bits only
        values = 1 - values
    if "transparency" in image.info:
        values[stored == image.info["transparency"]] = 1
    return values[None]
