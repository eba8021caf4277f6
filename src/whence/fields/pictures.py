"""Picture files as tensors, and back. Values are those stored: no colour profile is applied."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from torch import Tensor

from whence.errors import UserError, not_allowed
from whence.fields.decoding import FORMATS, MAX_PIXELS, Undecodable, decode, size
from whence.store.files import write_atomically

__all__ = ["MAX_PIXELS", "found_in", "measured", "read", "write"]

T = TypeVar("T")

MAX_BYTES = 2**29
"""Enough for `MAX_PIXELS` of four channels of 16 bits"""
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


def read(source: str | Path | bytes | BinaryIO, name: str = "") -> Tensor:
    """(3, height, width) float32 in [0, 1]: the first frame, upright, over white. `name`: what to call an upload.

    Grey keeps up to 16 bits, colour 8.
    """
    values = _opened(source, name, decode)
    return torch.from_numpy(values).expand(3, -1, -1).contiguous()


def measured(source: str | Path | bytes, name: str = "") -> tuple[int, int]:
    """Height and width as stored, by the header alone."""
    return _opened(source, name, size)


def _opened(source: str | Path | bytes | BinaryIO, name: str, look: Callable[[bytes], T]) -> T:
    need_pillow("input")
    name = name or (str(source) if isinstance(source, (str, Path)) else "upload")
    try:
        return look(_bytes(source))
    except Undecodable as error:
        allowed = f"Allowed: a whole picture ({', '.join(FORMATS)})."
        raise UserError(f"input: {name!r} {error}. {allowed}", field="input") from None


def _bytes(source: str | Path | bytes | BinaryIO) -> bytes:
    try:
        if isinstance(source, (str, Path)):
            if not Path(source).is_file():  # nor a device, which may never end
                raise Undecodable("is not a file")
            with Path(source).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        else:
            data = source if isinstance(source, bytes) else source.read(MAX_BYTES + 1)
    except OSError as error:
        raise Undecodable(f"cannot be read ({error.strerror or error})") from None
    if len(data) > MAX_BYTES:
        raise Undecodable(f"has more than {MAX_BYTES} bytes")
    return data


def write(path: str | Path, picture: Tensor) -> None:
    """(1 or 3, height, width), bytes or clipped to [0, 1], in 8 bits by the file's suffix. Only JPEG loses more."""
    path = check_out(path)
    from PIL import Image

    if picture.ndim != 3 or picture.shape[0] not in (1, 3) or not picture.numel():
        raise ValueError(f"a picture is (1 or 3, height, width), not {tuple(picture.shape)}")
    if not torch.isfinite(picture).all():
        raise UserError("out: the picture holds values that are not finite numbers.", field="out")
    values = picture.detach().cpu()
    values = values if values.dtype == torch.uint8 else values.float().clamp(0, 1).mul(255).round().to(torch.uint8)
    image = Image.fromarray((values[0] if len(values) == 1 else values.permute(1, 2, 0)).contiguous().numpy())
    kind, options = WRITTEN[path.suffix.lower()]
    buffer = io.BytesIO()
    try:
        image.save(buffer, kind, **options)
        write_atomically(path, buffer.getvalue())
    except (OSError, ValueError) as error:
        raise UserError(f"out: {str(path)!r} cannot be written ({error}).", field="out") from None


def check_out(path: str | Path) -> Path:
    """Before any work: can a picture be written there?"""
    need_pillow("out")
    path = Path(path)
    if path.suffix.lower() not in WRITTEN:
        raise not_allowed("out", path.suffix, list(WRITTEN))
    if not path.parent.is_dir():
        raise UserError(f"out: {str(path.parent)!r} is not a directory.", field="out")
    return path


def found_in(folder: str | Path) -> list[Path]:
    """The picture files directly in a folder, by name; none that are hidden."""
    try:
        if not str(folder) or not Path(folder).is_dir():
            raise UserError(f"data: {str(folder)!r} is not a folder.", field="data")
        visible = [path for path in Path(folder).iterdir() if not path.name.startswith(".")]
        found = sorted(path for path in visible if path.suffix.lower() in SUFFIXES and path.is_file())
    except OSError as error:
        raise UserError(f"data: {str(folder)!r} cannot be read ({error.strerror or error}).", field="data") from None
    if not found:
        raise UserError(f"data: no picture in {str(folder)!r}. Allowed: any of {', '.join(SUFFIXES)}.", field="data")
    return found


def need_pillow(field: str) -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise UserError(f"{field}: pictures need Pillow. Run: pip install pillow", field=field) from None
