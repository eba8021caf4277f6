"""Whatever somebody brings as a picture: it is rendered, or it gets a message. Nothing is written anywhere."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.app.browse import App, Visitor
from tests.app.fields import saved, trained, waves

PICTURE = Image.fromarray(waves(20, 24))
RENDERED = "24×20 pixels."
REFUSED = re.compile(r"is damaged or truncated|is not an image of a supported format|has more than|pixels; expected")
TOO_LARGE = re.compile(r"must be .* or smaller")


def half(kind: str) -> bytes:
    data = saved(PICTURE, kind)
    return data[: len(data) // 2]


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png_that_claims(width: int, height: int, rows: bytes = b"\0" * 64) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def bomb() -> bytes:
    """7000×7000 pixels in some 50 KB."""
    return saved(Image.new("1", (7000, 7000)))


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../../evil.png", saved(PICTURE))
    return buffer.getvalue()


def not_numbers() -> bytes:
    return saved(Image.fromarray(np.full((20, 24), np.nan, np.float32)), "TIFF")


def turned() -> bytes:
    facts = Image.Exif()
    facts[0x0112] = 6  # a quarter turn
    return saved(PICTURE.transpose(Image.Transpose.ROTATE_90), "JPEG", exif=facts)


def animated(kind: str) -> bytes:
    return saved(PICTURE, kind, save_all=True, append_images=[PICTURE.rotate(90), PICTURE.rotate(180)])


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="document.title=\'taken\'"><rect width="9" height="9"/></svg>'
HTML = b"<html><script>document.title='taken'</script></html>"
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\nshowpage\n"
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"

DAMAGED: dict[str, Callable[[], bytes]] = {
    "half.png": lambda: half("PNG"),
    "half.jpg": lambda: half("JPEG"),
    "half.gif": lambda: half("GIF"),
    "half.tif": lambda: half("TIFF"),
    "half.webp": lambda: half("WEBP"),
    "half.bmp": lambda: half("BMP"),
    "flipped.png": lambda: saved(PICTURE).replace(b"IDAT", b"IDAT\xff", 1),
    "empty.png": lambda: b"",
    "one-byte.png": lambda: b"\x89",
    "bomb.png": bomb,
    "claims-much.png": lambda: png_that_claims(60_000, 60_000),
    "claims-more.png": lambda: png_that_claims(2**31 - 1, 2**31 - 1),
    "claims-nothing.png": lambda: png_that_claims(0, 0),
    "few-rows.png": lambda: png_that_claims(400, 400),
    "text.png": lambda: b"just some words\n" * 50,
    "html.png": lambda: HTML,
    "svg.png": lambda: SVG,
    "eps.png": lambda: EPS,
    "pdf.jpg": lambda: PDF,
    "zip.png": zipped,
    "words.txt": lambda: b"words",
    "page.html": lambda: HTML,
    "drawing.svg": lambda: SVG,
    "paper.pdf": lambda: PDF,
    "archive.zip": zipped,
    "npy.tif": lambda: b"\x93NUMPY" + b"\0" * 200,
    "noise.webp": lambda: b"RIFF\xff\xff\xff\x7fWEBPVP8 " + bytes(range(256)),
}

LEGITIMATE: dict[str, tuple[Callable[[], bytes], str]] = {
    "turned.jpg": (turned, RENDERED),
    "animated.png": (lambda: animated("PNG"), RENDERED),
    "animated.gif": (lambda: animated("GIF"), RENDERED),
    "print.jpg": (lambda: saved(PICTURE.convert("CMYK"), "JPEG"), RENDERED),
    "deep.png": (lambda: saved(Image.fromarray(np.arange(480, dtype=np.uint16).reshape(20, 24) * 100)), RENDERED),
    "clear.webp": (lambda: saved(PICTURE.convert("RGBA"), "WEBP"), RENDERED),
    "palette.gif": (lambda: saved(PICTURE, "GIF"), RENDERED),
    "black-and-white.bmp": (lambda: saved(PICTURE.convert("1"), "BMP"), RENDERED),
    "point.png": (lambda: saved(Image.new("RGB", (1, 1), "red")), "1×1 pixels."),
    "thin.png": (lambda: saved(Image.new("RGB", (3000, 1))), "3,000×1 pixels, reduced to 256×1"),
    "large.png": (lambda: saved(Image.new("1", (5000, 4000))), "5,000×4,000 pixels, reduced to 256×205"),
    "really-a-jpeg.png": (lambda: saved(PICTURE, "JPEG"), RENDERED),
}

NAMES = {
    "../../../etc/passwd.png": "passwd.png",
    "<img src=x onerror=\"document.title='taken'\">.png": "onerror",
    "**bold** [a](javascript:alert(1)) :red[x].png": "**bold** [a](javascript",
    "\u202egnp.exe.png": "\N{REPLACEMENT CHARACTER}gnp.exe.png",
    "line\nbreak.png": "break.png",
    "null\0byte.png": "null",
    "x" * 240 + ".png": "x" * 59 + "…",
    "no ending": "no ending",
}


def everything(folder: Path) -> set[Path]:
    """The app stands in it, and so does its store."""
    return set(folder.rglob("*"))


def still_there(visitor: Visitor) -> None:
    expect(visitor.page.get_by_role("heading", name="Fields")).to_be_visible()
    expect(visitor.page.get_by_text("could not be displayed")).to_have_count(0)
    expect(visitor.page.get_by_text("Traceback")).to_have_count(0)
    assert visitor.page.title() != "taken"


@pytest.fixture(scope="module", autouse=True)
def run(app: App) -> None:
    trained(app)


def test_uploads_are_rendered_or_get_a_message_and_nothing_is_written(
    visitor: Visitor, app: App, tmp_path: Path
) -> None:
    assert len(DAMAGED) + len(LEGITIMATE) + len(NAMES) >= 40
    visitor.open("fields?size=64")
    visitor.sees(re.compile("→ 64×.* pixels"))
    before = everything(app.store.root.parent)
    alert = visitor.page.get_by_role("alert")
    for name, make in DAMAGED.items():
        visitor.upload(name, make())
        expect(alert.filter(has_text=name).filter(has_text=REFUSED)).to_be_visible()
        visitor.sees("No image to show.")
        still_there(visitor)
    for name, (make, told) in LEGITIMATE.items():
        visitor.upload(name, make())
        visitor.sees(f"{name}: {told}")
        visitor.sees(re.compile(r"→ \d+×\d+ pixels, render"))
        still_there(visitor)
    for name, shown in NAMES.items():
        visitor.upload(name, saved(PICTURE))
        visitor.sees(re.compile(re.escape(shown) + ".*24×20 pixels", re.DOTALL))
        still_there(visitor)
    visitor.upload("not-a-number.tif", not_numbers())
    expect(alert.filter(has_text="holds values outside of [0, 1]")).to_be_visible()
    large = tmp_path / "too-large.png"
    large.write_bytes(saved(PICTURE) + b"\0" * (33 * 2**20))
    visitor.upload(large.name, large)
    expect(visitor.page.get_by_test_id("stFileUploader").filter(has_text=large.name)).to_contain_text(TOO_LARGE)
    still_there(visitor)
    assert everything(app.store.root.parent) == before


def test_no_room_is_made_for_a_picture_that_is_too_large(visitor: Visitor, app: App) -> None:
    visitor.open("fields?size=64")
    visitor.sees(re.compile("→ 64×.* pixels"))
    process = Path(f"/proc/{app.server}")
    (process / "clear_refs").write_text("5")  # the peak is counted from here
    before = peak_mb(process)
    visitor.upload("large.png", saved(Image.new("RGB", (8000, 8000))))
    expect(visitor.page.get_by_role("alert").filter(has_text="large.png").filter(has_text=REFUSED)).to_be_visible()
    assert peak_mb(process) - before < 100


def peak_mb(process: Path) -> float:
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
    return int(peak) / 1000
