"""Files that a stranger may hand in: each is small, and claims or hides what costs much, or is not what it is called.

Every builder yields (name, bytes) or (name, function that makes it at a path); names say what is wrong. All of them
must be refused with a `UserError`, or read as what they show, within seconds and within the stated memory.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import signal
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whence.errors import UserError

Maker = Callable[[Path], object]
"""Makes a file or directory at a path"""
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000


class Stuck(BaseException):
    """Takes too long. No reader takes this for an error of its own."""


@contextmanager
def bounded(mebibytes: int, seconds: float = 5) -> Iterator[None]:
    """What is done inside may use so much more memory, and so much time."""

    def stop(*_: object) -> None:
        raise Stuck

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + mebibytes * 2**20, before[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def refusal(read: Callable[[], object], mebibytes: int) -> str:
    """One line, of the `UserError`; empty if there is none."""
    try:
        with bounded(mebibytes):
            read()
    except UserError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1000
        assert "memory" not in message.lower().replace("need", "")
        assert "allocate" not in message.lower()
        return message
    return ""


def not_files() -> Iterator[tuple[str, Maker]]:
    """In place of any file."""
    yield "a directory", lambda path: path.mkdir()
    yield "a pipe", lambda path: os.mkfifo(path)
    yield "a device", lambda path: path.symlink_to("/dev/zero")
    yield "a link to itself", lambda path: path.symlink_to(path)
    yield "a link to nothing", lambda path: path.symlink_to(path.with_name("nothing"))
    yield "nothing", lambda path: None


# --- pictures


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, bits: int, kind: int, rows: bytes, more: bytes = b"") -> bytes:
    """`kind`: 0 grey, 2 colour, 4 grey with alpha, 6 colour with alpha."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    pixels = png_chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + header + more + pixels + png_chunk(b"IEND", b"")


def tiff(tags: dict[int, int], pixels: bytes = b"") -> bytes:
    tags = {**tags, 273: 8, 279: len(pixels)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + struct.pack("<H", len(tags)) + entries + bytes(4)


def progressive_jpeg(scans: int) -> bytes:
    """Of 2 scans, the last repeated."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("L", (2000, 2000), 7).save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def hostile_pictures() -> Iterator[tuple[str, bytes]]:
    bomb = zlib.compress(bytes(200_000_000), 9)
    yield "64 megapixels", png(8000, 8000, 8, 2, bytes(1000))
    yield "more pixels than fit 32 bits", png(2**31 - 1, 2**31 - 1, 8, 2, b"")
    yield "no pixels", png(0, 1, 8, 2, b"")
    yield "a profile of 200 MB", png(1, 1, 8, 0, b"\0\0", png_chunk(b"iCCP", b"x\0\0" + bomb))
    yield "text of 200 MB", png(1, 1, 8, 0, b"\0\0", png_chunk(b"zTXt", b"x\0\0" + bomb))
    yield "pixels of 200 MB for one", png(1, 1, 8, 0, bytes(200_000_000))
    yield "a million chunks", png(1, 1, 8, 0, b"\0\0", png_chunk(b"teXt", b"") * 1_000_000)
    yield "cut in its header", png(1, 1, 8, 0, b"\0\0")[:20]
    yield "1,000 scans", progressive_jpeg(1000)
    yield "a GIF of 65,535 squared", b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b",\0\0\0\0" + bytes(40)
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x4c\x01\x00"
    screen = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6)
    yield "a GIF with a frame outside", screen + frame.replace(b",\0\0\0\0", b",\xff\xff\xff\xff") + b";"
    yield (
        "a WebP of 16,384 squared",
        (b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + b"\xff\x3f\0" * 2),
    )
    side = 30_000
    yield "a BMP of 30,000 squared", b"BM" + struct.pack("<IHHIIiiHH6I", 54, 0, 0, 54, 40, side, side, 1, 24, *[0] * 6)
    yield "a TIFF of 10,000,000 by 10,000,000", tiff({256: 10**7, 257: 10**7, 258: 8, 259: 1, 262: 1, 278: 1})
    yield "a TIFF whose directory is itself", b"II*\0" + struct.pack("<I", 8) + struct.pack("<HI", 0, 8)
    yield "a PPM of 10,000,000 by 10,000,000", b"P6 10000000 10000000 255\n"
    yield "a PPM of 9 MB of text", b"P3 1700 1700 255\n" + b"1 " * 4_500_000
    yield "PostScript", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    yield "SVG", b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"
    yield "nothing in it", b""


# --- arrays


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(header))
    return b"\x93NUMPY" + version + length + header.encode("latin1") + data


def npy_of(dtype: str, shape: str, data: bytes = b"") -> bytes:
    return npy(f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}", data)


def hostile_arrays() -> Iterator[tuple[str, bytes]]:
    yield "objects", npy_of("'|O'", "(1,)", pickle.dumps(print))
    yield "a pickle", pickle.dumps([1.0])
    yield "an archive", b"PK\3\4" + bytes(30)
    yield "fields", npy_of("[('a', '<f4'), ('b', '<f4')]", "(2,)", bytes(16))
    yield "text", npy_of("'<U1000000000'", "()", b"")
    yield "more than there is", npy_of("'<f4'", "(1000000000, 1000)", bytes(64))
    yield "more than fits 64 bits", npy_of("'<f4'", "(4294967296, 4294967296, 4)", bytes(64))
    yield "less than there is", npy_of("'<f4'", "(2,)", bytes(64))
    yield "a length below 0", npy_of("'<f4'", "(-4, -4)", bytes(64))
    yield "nothing, of any size", npy_of("'<f4'", "(0, 9223372036854775807, 9223372036854775807)")
    yield "100 axes", npy_of("'<f4'", f"({'1, ' * 100})", bytes(4))
    yield "no axes", npy_of("'<f4'", "()", bytes(4))
    yield "numbers of no size", npy_of("'|V0'", "(1000000000000,)")
    yield "a deep header", npy("(" * 5000)
    yield "a deep sum", npy("-" * 5000 + "1")
    yield "a header of 4 GB", npy("{}", version=b"\2\0")[:8] + b"\xff\xff\xff\xff" + bytes(100)
    yield "no header", npy("")
    yield "code", npy("__import__('os').abort()")
    yield "cut in its header", npy_of("'<f4'", "(16,)", bytes(64))[:30]
    yield "no numbers", npy_of("'<f4'", "(4, 4)", struct.pack("<f", float("nan")) * 16)
    yield "nothing in it", b""


# --- weights and models


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def hostile_safetensors() -> Iterator[tuple[str, bytes]]:
    yield "a header of 2**63 bytes", safetensors({}, length=2**63)
    yield "a header of 90 MB", struct.pack("<Q", 90_000_000) + b"{" + b" " * (90_000_000 - 2) + b"}"
    yield "a header longer than the file", safetensors({}, length=1000)
    yield "a deep header", safetensors(DEEP)
    yield "a list", safetensors([])
    yield "no JSON", safetensors(b"{" * 10)
    yield "more than there is", safetensors({"a": tensor([2**30, 2**30], 0, 2**62)})
    yield "more than fits 64 bits", safetensors({"a": tensor([2**40, 2**40], 0, 16)}, bytes(16))
    yield "a shape of another size", safetensors({"a": tensor([5], 0, 16)}, bytes(16))
    yield "tensors over each other", safetensors({"a": tensor([4], 0, 16), "b": tensor([4], 8, 24)}, bytes(24))
    yield "a length below 0", safetensors({"a": tensor([-4], 0, 16)}, bytes(16))
    yield "an unknown type", safetensors({"a": tensor([4], 0, 16, "X9")}, bytes(16))
    yield "whole numbers", safetensors({"a": tensor([4], 0, 16, "I32")}, bytes(16))
    yield "a pickle", pickle.dumps({"a": 1})
    yield "nothing in it", b""


def hostile_configs() -> Iterator[tuple[str, dict[str, object] | bytes]]:
    """Of a model: what to change in its config.json, or all of it."""
    yield "256 GB of vocabulary", {"vocab_size": 2_000_000_000}
    yield "a vocabulary beyond 64 bits", {"vocab_size": 10**30}
    yield "a vocabulary below 0", {"vocab_size": -5}
    yield "half a token", {"vocab_size": 0.5}
    yield "a vocabulary in words", {"vocab_size": "many"}
    yield "ten million layers", {"num_hidden_layers": 10**7, "n_layer": 10**7}
    yield "a million layers", {"num_hidden_layers": 10**6, "n_layer": 10**6}
    yield "layers in a list", {"num_hidden_layers": [2], "n_layer": [2]}
    yield "a layer too many", {"num_hidden_layers": 3, "n_layer": 3}
    yield "a layer too few", {"num_hidden_layers": 1, "n_layer": 1}
    yield "no layers", {"num_hidden_layers": 0, "n_layer": 0}
    yield "wide", {"hidden_size": 10**9, "n_embd": 10**9}
    yield "as wide as 64 bits", {"hidden_size": 2**31, "intermediate_size": 2**31, "n_embd": 2**31}
    yield "a billion labels", {"num_labels": 10**9}
    yield "a billion positions", {"max_position_embeddings": 10**9, "n_positions": 10**9}
    yield "no heads", {"num_attention_heads": 0, "n_head": 0}
    yield "an unknown type", {"model_type": "nothing"}
    yield "a type that is a list", {"model_type": ["bert"]}
    yield "a model of pictures", {"model_type": "vit"}
    yield "a model that names another", {"model_type": "dpt", "backbone": "/dev", "use_pretrained_backbone": True}
    yield "quantized", {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    yield "an unknown activation", {"hidden_act": "import os", "activation_function": "import os"}
    yield "nested", DEEP
    yield "nested in a field", {"a": json.loads("[" * 500 + "]" * 500)}
    yield "a list", b"[]"
    yield "no JSON", b"{"
    yield "nothing", b"{}"
    yield "16 MB of spaces", b"{" + b" " * 2**24 + b"}"
    yield "bytes", bytes(range(256))


def hostile_model_directories(good: Callable[[Path], object]) -> Iterator[tuple[str, Maker]]:
    """good: makes a directory with a whole model, with config.json and model.safetensors."""

    def changed(change: Callable[[Path], object]) -> Maker:
        def make(folder: Path) -> None:
            good(folder)
            change(folder)

        return make

    def config(change: dict[str, object] | bytes) -> Maker:
        def write(folder: Path) -> None:
            path = folder / "config.json"
            path.write_bytes(
                change if isinstance(change, bytes) else json.dumps({**json.loads(path.read_text()), **change}).encode()
            )

        return changed(write)

    def replaced(name: str, make: Maker) -> Maker:
        def write(folder: Path) -> object:
            (folder / name).unlink()
            return make(folder / name)

        return changed(write)

    def index(target: str) -> Maker:
        def write(folder: Path) -> None:
            (folder / "model.safetensors").rename(folder / "elsewhere.bin")
            document = {"metadata": {}, "weight_map": {"a": target.format(folder=folder)}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(document))

        return changed(write)

    for name, change in hostile_configs():
        yield f"config.json: {name}", config(change)
    for name, data in hostile_safetensors():
        yield f"weights: {name}", replaced("model.safetensors", lambda path, data=data: path.write_bytes(data))
    for name, make in not_files():
        yield f"config.json: {name}", replaced("config.json", make)
        yield f"weights: {name}", replaced("model.safetensors", make)
    for target in ("../elsewhere.bin", "/dev/zero", "{folder}/elsewhere.bin", "elsewhere.bin", "sub/a.safetensors", ""):
        yield f"index: {target or 'no name'}", index(target)
    pickled = pickle.dumps({"a": 1})
    yield (
        "weights: pickled beside none",
        replaced("model.safetensors", lambda path: path.with_name("pytorch_model.bin").write_bytes(pickled)),
    )
