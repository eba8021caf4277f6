"""Pictures of every kind are read as what they show; what is damaged, huge or unknown is refused by name."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.hostile import hostile_pictures, not_files, png, png_chunk, refusal, tiff
from whence.errors import UserError
from whence.fields.images import MAX_PIXELS, check_out, image_files, read, read_size, write

Image = pytest.importorskip("PIL.Image")
ImageFile = pytest.importorskip("PIL.ImageFile")

GREY = np.array([[0, 10, 100], [200, 254, 255]], dtype=np.uint8)
COLOUR = np.stack([GREY, GREY[::-1], GREY[:, ::-1]], -1)


def expected(values: np.ndarray) -> Tensor:
    """(H, W) or (H, W, 3) of [0, 1] as it should be read."""
    values = np.broadcast_to(values[..., None] if values.ndim == 2 else values, (*values.shape[:2], 3))
    return torch.tensor(values.transpose(2, 0, 1).copy(), dtype=torch.float32)


def png16(values: np.ndarray, kind: int, more: bytes = b"") -> bytes:
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return png(values.shape[1], values.shape[0], 16, kind, rows, more)


def grey_tiff(pixels: bytes, bits: int, photometric: int) -> bytes:
    """2 x 2."""
    return tiff({256: 2, 257: 2, 258: bits, 259: 1, 262: photometric, 277: 1, 278: 2}, pixels)


def encoded(picture: object, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)  # type: ignore[attr-defined]
    return buffer.getvalue()


def noisy() -> bytes:
    return encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)))


@pytest.mark.parametrize("suffix", ["png", "webp", "tif", "bmp", "ppm"])
def test_colour(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(COLOUR).save(path, **({"lossless": True} if suffix == "webp" else {}))
    found = read(path)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    assert torch.equal(found, expected(COLOUR / 255))
    assert torch.equal(read(str(path)), found)


@pytest.mark.parametrize("suffix", ["png", "tif", "bmp", "pgm", "gif"])
def test_grey(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(GREY).save(tmp_path / f"a.{suffix}")
    assert torch.equal(read(tmp_path / f"a.{suffix}"), expected(GREY / 255))


def test_jpeg_in_colour_grey_and_cmyk(tmp_path: Path) -> None:
    for mode, value, shown in [("RGB", (200, 30, 90), (200, 30, 90)), ("L", 77, (77, 77, 77))]:
        Image.new(mode, (16, 8), value).save(tmp_path / "a.jpg", quality=98)
        truth = torch.tensor(shown)[:, None, None] / 255
        assert torch.allclose(read(tmp_path / "a.jpg"), truth.expand(3, 8, 16), atol=2 / 255)
    for suffix in ("jpg", "tif"):
        Image.new("CMYK", (16, 8), (255, 0, 0, 0)).save(tmp_path / f"a.{suffix}")
        cyan = torch.tensor([0.0, 1.0, 1.0])[:, None, None]
        assert torch.allclose(read(tmp_path / f"a.{suffix}"), cyan.expand(3, 8, 16), atol=3 / 255)


def test_alpha_lies_over_white() -> None:
    alpha = np.array([[0, 51, 255], [255, 102, 0]], dtype=np.uint8)
    a = alpha[..., None] / 255
    rgba = Image.fromarray(np.dstack([COLOUR, alpha]))
    assert torch.allclose(read(encoded(rgba)), expected(COLOUR / 255 * a + 1 - a), atol=1e-6)
    la = Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(alpha)])
    assert torch.allclose(read(encoded(la)), expected(GREY / 255 * a[..., 0] + 1 - a[..., 0]), atol=1e-6)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_palette_with_and_without_a_transparent_entry(kind: str) -> None:
    picture = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8)).convert("P")
    picture.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    colours = np.eye(3)[None]
    assert torch.equal(read(encoded(picture, kind)), expected(colours))
    shown = colours.copy()
    shown[0, 1] = 1
    assert torch.equal(read(encoded(picture, kind, transparency=1)), expected(shown))


def test_palette_with_half_transparent_entries() -> None:
    picture = Image.fromarray(np.array([[0, 1]], dtype=np.uint8)).convert("P")
    picture.putpalette([255, 0, 0, 0, 255, 0])
    shown = np.array([[[1, 0.8, 0.8], [0.6, 1, 0.6]]])
    assert torch.allclose(read(encoded(picture, transparency=bytes([51, 102]))), expected(shown), atol=1e-6)


def test_one_bit(tmp_path: Path) -> None:
    bits = np.array([[True, False, True], [False, False, True]])
    for name in ("a.png", "a.pbm", "a.tif"):
        Image.fromarray(bits).save(tmp_path / name)
        assert torch.equal(read(tmp_path / name), expected(bits.astype(float)))


def test_grey_of_16_bits_keeps_them(tmp_path: Path) -> None:
    deep = np.array([[0, 1, 255], [256, 40000, 65535]], dtype=np.uint16)
    for name in ("a.png", "a.tif", "a.pgm"):
        Image.fromarray(deep).save(tmp_path / name)
        assert torch.allclose(read(tmp_path / name), expected(deep / 65535), atol=1e-7, rtol=0)
    assert torch.allclose(read(png16(deep, 0)), expected(deep / 65535), atol=1e-7, rtol=0)
    keyed = deep / 65535
    keyed[1, 0] = 1
    assert torch.allclose(read(png16(deep, 0, png_chunk(b"tRNS", b"\1\0"))), expected(keyed), atol=1e-7, rtol=0)


def test_tiff_of_12_bits_and_where_white_is_0() -> None:
    deep = np.array([[0, 1000], [2000, 4095]], dtype=np.uint16)
    packed = bytes([0x00, 0x03, 0xE8, 0x7D, 0x0F, 0xFF])
    assert torch.allclose(read(grey_tiff(packed, bits=12, photometric=1)), expected(deep / 4095), atol=1e-7)
    assert torch.allclose(read(grey_tiff(deep.tobytes(), 16, photometric=0)), expected(1 - deep / 65535), atol=1e-7)


def test_colour_of_16_bits_is_scaled_to_8() -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (5, 4, 3), dtype=np.uint16)
    assert torch.allclose(read(png16(deep, 2)), expected(deep / 65535), atol=1 / 255)
    opaque = np.dstack([deep[..., 0], np.full((5, 4), 65535, dtype=np.uint16)])
    assert torch.allclose(read(png16(opaque, 4)), expected(deep[..., 0] / 65535), atol=1 / 255)


def test_float_within_0_and_1_or_refused(tmp_path: Path) -> None:
    values = np.array([[0, 0.25], [1 / 3, 1]], dtype=np.float32)
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert torch.equal(read(tmp_path / "a.tif"), expected(values))
    for wrong in (np.nan, np.inf, -0.01, 1.5):
        values[0, 1] = wrong
        Image.fromarray(values).save(tmp_path / "a.tif")
        with pytest.raises(UserError, match=r"a\.tif' holds values outside of \[0, 1\]"):
            read(tmp_path / "a.tif")


def test_whole_numbers_of_32_bits_have_no_range(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 70000]], dtype=np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match="unknown range"):
        read(tmp_path / "a.tif")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_turns_a_picture_upright(kind: str) -> None:
    """Orientation 6: what is stored left is shown on top."""
    stored = np.zeros((8, 16, 3), dtype=np.uint8)
    stored[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    found = read(encoded(Image.fromarray(stored), kind, exif=exif))
    assert found.shape == (3, 16, 8)
    assert found[:, :7].min() > 0.9
    assert found[:, 9:].max() < 0.1


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue", "lime")]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    assert torch.equal(read(data), torch.tensor([1.0, 0, 0])[:, None, None].expand(3, 4, 6))


def test_an_upload_is_called_by_its_name() -> None:
    data = encoded(Image.fromarray(COLOUR))
    assert read(data).shape == (3, 2, 3)
    with pytest.raises(UserError, match=r"'cat\.png' is not an image"):
        read(b"nothing", name="cat.png")
    with pytest.raises(UserError, match="'upload' is not an image"):
        read(b"")


def test_text_that_is_called_a_picture(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("I am a picture.\n" * 100)
    with pytest.raises(UserError, match=r"a\.png' is not an image of a supported format") as caught:
        read(tmp_path / "a.png")
    assert caught.value.field == "input"


def test_formats_that_start_programs_are_not_opened() -> None:
    with pytest.raises(UserError, match="is not an image of a supported format"):
        read(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_picture_cut_short_is_refused_even_where_pillow_is_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lenient: bool, kind: str
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", lenient)
    whole = encoded(Image.open(io.BytesIO(noisy())), kind)
    for part in (0.5, 0.9, 0.99):
        (tmp_path / "a.png").write_bytes(whole[: int(len(whole) * part)])
        with pytest.raises(UserError, match=r"a\.png' is damaged or truncated"):
            read(tmp_path / "a.png")
    assert lenient == ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_wherever_it_is_cut_a_picture_is_whole_or_refused(kind: str) -> None:
    data = encoded(Image.open(io.BytesIO(noisy())).convert("P" if kind == "GIF" else "RGB"), kind)
    truth = read(data)
    for length in range(0, len(data), 37):
        try:
            found = read(data[:length])
        except UserError:
            continue
        assert torch.equal(found, truth)


def test_a_changed_byte_of_a_png_is_noticed() -> None:
    """Also where all rows can still be decoded before the stream ends."""
    whole = encoded(Image.fromarray(np.add.outer(np.arange(30), np.arange(25)).astype(np.uint8) ** 2))
    for place in range(len(whole) - 12):
        data = bytearray(whole)
        data[place] ^= 8
        with pytest.raises(UserError):
            read(bytes(data))


@pytest.mark.parametrize("side", [5001, 8000, 13_000, 100_000])
def test_huge_pictures_are_refused_by_their_header(tmp_path: Path, side: int) -> None:
    assert side**2 > MAX_PIXELS
    (tmp_path / "bomb.png").write_bytes(png(side, side, 8, 2, bytes(1000)))
    with pytest.raises(UserError, match=r"bomb\.png' has .*25000000"):
        read(tmp_path / "bomb.png")


def test_huge_files_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate(2**40)
    assert "is too large. Expected at most 256.0 MiB" in refusal(lambda: read(tmp_path / "a.png"), mebibytes=50)


def test_hostile_pictures_are_refused() -> None:
    """Or read as what they show."""
    for name, data in hostile_pictures():
        refused = refusal(lambda data=data, name=name: read(data, name), mebibytes=300)
        assert refused.startswith(f"input: {name!r} ") or name == "pixels of 200 MB for one"
        refusal(lambda data=data, name=name: read_size(data, name), mebibytes=300)


def test_what_is_no_picture_file_is_refused(tmp_path: Path) -> None:
    for name, make in not_files():
        make(tmp_path / name)
        assert name in refusal(lambda name=name: read(tmp_path / name), mebibytes=50)


def test_memory_for_the_largest_picture() -> None:
    """As stated in docs/security.md: the most is needed for colour with alpha."""
    data = png(5000, 5000, 8, 6, bytes(5000 * (1 + 4 * 5000)))
    assert refusal(lambda: read(data), mebibytes=700) == ""


def test_a_rendering_that_would_not_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.fields.images.memory_bytes", lambda: 4 * 2**30)
    check_out(tmp_path / "a.png", 8192**2)
    with pytest.raises(UserError, match=r"size: 67,108,864 pixels in \.webp need 3\.1 GiB"):
        check_out(tmp_path / "a.webp", 8192**2)


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (1, 1)])
def test_thin_pictures(size: tuple[int, int]) -> None:
    grey = np.arange(size[0] * size[1], dtype=np.uint8).reshape(size)
    assert torch.equal(read(encoded(Image.fromarray(grey))), expected(grey / 255))


@pytest.mark.parametrize(("bits", "kind", "key"), [(2, 0, b"\0\1"), (4, 0, b"\0\1"), (16, 2, b"\0\1\0\1\0\1")])
def test_transparent_colours_that_pillow_mistakes_are_refused(bits: int, kind: int, key: bytes) -> None:
    with pytest.raises(UserError, match="one colour as transparent"):
        read(png(1, 1, bits, kind, bytes(7), png_chunk(b"tRNS", key)))


def test_names_that_no_file_has(tmp_path: Path) -> None:
    for path in (tmp_path / "none.png", "a\0b.png", "", "a" * 5000):
        with pytest.raises(
            UserError, match=r"not the name of a file|not a file|cannot be read|not an existing"
        ) as caught:
            read(path)
        assert caught.value.field == "input"


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is permitted")
def test_no_permission(tmp_path: Path) -> None:
    write(tmp_path / "a.png", torch.zeros(1, 2, 2))
    (tmp_path / "a.png").chmod(0)
    with pytest.raises(UserError, match=r"a\.png' cannot be read \(Permission denied\)"):
        read(tmp_path / "a.png")
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path / "b.png", torch.zeros(1, 2, 2))
    tmp_path.chmod(0o700)


def test_permission_errors_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.png", torch.zeros(1, 2, 2))

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(UserError, match=r"a\.png' cannot be read \(Permission denied\)"):
        read(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"b\.png' cannot be written") as caught:
        write(tmp_path / "b.png", torch.zeros(1, 2, 2))
    assert caught.value.field == "out"


@pytest.mark.parametrize("suffix", ["png", "webp", "tif", "tiff", "bmp", "PNG"])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_written_is_read_again(tmp_path: Path, suffix: str, channels: int) -> None:
    picture = torch.randint(256, (channels, 13, 7), generator=torch.Generator().manual_seed(0)) / 255
    write(tmp_path / f"a.{suffix}", picture)
    assert torch.equal(read(tmp_path / f"a.{suffix}"), picture.expand(3, -1, -1))
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{suffix}"]


@pytest.mark.parametrize("suffix", ["jpg", "jpeg"])
def test_jpeg_is_near(tmp_path: Path, suffix: str) -> None:
    picture = torch.linspace(0, 1, 3 * 32 * 24).reshape(3, 32, 24)
    write(tmp_path / f"a.{suffix}", picture)
    assert torch.allclose(read(tmp_path / f"a.{suffix}"), picture, atol=0.03)


def test_values_are_clipped_and_rounded(tmp_path: Path) -> None:
    write(tmp_path / "a.png", torch.tensor([[[-3.0, 0.4 / 255, 0.6 / 255, 254.6 / 255, 7.0]]], dtype=torch.float64))
    assert (read(str(tmp_path / "a.png"))[0, 0] * 255).tolist() == [0, 0, 1, 255, 255]
    graph = torch.full((3, 2, 2), 0.5, requires_grad=True)
    write(str(tmp_path / "a.png"), graph * 1)
    assert read(tmp_path / "a.png").shape == (3, 2, 2)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    picture = torch.zeros(3, 4, 4)
    (tmp_path / "taken.png").mkdir()
    for path, words in [
        (tmp_path / "a.gif", "'.gif' is not known. Allowed: .png"),
        (tmp_path / "a", "'' is not known"),
        (tmp_path / "none" / "a.png", "none' is not a directory"),
        (tmp_path / "taken.png", "taken.png' cannot be written"),
    ]:
        with pytest.raises(UserError, match=words) as caught:
            write(path, picture)
        assert caught.value.field == "out"
    with pytest.raises(UserError, match="finite values"):
        write(tmp_path / "a.png", picture * torch.nan)
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path / "a.webp", torch.zeros(1, 1, 20_000))
    for wrong in (torch.zeros(2, 4, 4), torch.zeros(4, 4), torch.zeros(3, 0, 4)):
        with pytest.raises(ValueError, match="1 or 3, height, width"):
            write(tmp_path / "a.png", wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.png"]


def test_a_failed_write_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.png", torch.ones(1, 2, 2))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left"):
        write(tmp_path / "a.png", torch.zeros(1, 2, 2))
    assert read(tmp_path / "a.png").min() == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_pictures_are_found_by_suffix_in_order(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "c.tiff", "notes.txt", ".hidden.png"):
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    assert [path.name for path in image_files(tmp_path)] == ["a.JPG", "b.png", "c.tiff"]
    assert image_files(str(tmp_path)) == image_files(tmp_path)


def test_folders_without_pictures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for folder, words in [
        (tmp_path, "no image found in"),
        (tmp_path / "none", "is not a directory"),
        (tmp_path / "notes.txt", "is not a directory"),
        ("a" * 5000, "is not a directory"),
    ]:
        with pytest.raises(UserError, match=words) as caught:
            image_files(folder)
        assert caught.value.field == "data"


def test_without_pillow_one_is_told_how_to_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['PIL'] = None\nimport torch\nfrom whence.fields.images import read, write\n"
        "from whence.errors import UserError\n"
        f"for call in (lambda: read('a.png'), lambda: write({str(tmp_path / 'a.png')!r}, torch.zeros(1, 2, 2))):\n"
        "    try: call()\n    except UserError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("pip install pillow") == 2
