"""Files of a user: pictures, arrays, autoencoders of SAELens."""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from random import Random

import torch

from tests.fuzz import guard, mutation, samples
from tests.fuzz.guard import Case, Run
from tests.fuzz.targets import target
from tests.fuzz.targets.documents import spoiled_tensors


@target(cases=12_000)
def pictures(prepared: Path) -> Run:
    """Pictures of all formats, as a file, as an upload of the app, and in a folder to train on."""
    from whence.app.views.fields.images import open_image, shown_name
    from whence.fields import images
    from whence.fields.data import Folder

    logging.getLogger("streamlit").setLevel(logging.ERROR)  # it misses a browser
    valid = samples.pictures()
    others = list(valid.values())

    def run(case: Case) -> str:
        random = case.random
        name, data = random.choice(list(valid.items()))
        data = mutation.spoil(random, data, others)
        case.note(f"{name}: {data[:3000]!r}")
        kind = random.randrange(8)
        if kind == 0:
            path = case.folder / random.choice((name, "other.png", "x.tif"))
            path.write_bytes(data)
            return guard.read(lambda: (images.read(path), images.read_size(path)))
        if kind == 1:
            folder = Folder(
                path=str(samples.write_files(case.folder / "f", {**_few(valid), name: data})), size=8, factor=1
            )
            return guard.read(lambda: [folder.draw(torch.Generator(), 2, "train"), folder.checksum_now()])
        if kind < 4:
            upload = shown_name(random.choice((name, *mutation.TEXTS)))
            return guard.read(lambda: open_image(data, upload))
        return guard.read(lambda: images.read(data, name))

    return run


def _few(valid: dict[str, bytes]) -> dict[str, bytes]:
    return {name: valid[name] for name in ("colour.png", "colour.jpg", "colour.bmp")}


HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }",
    "{'descr': '%s', 'fortran_order': False, 'shape': (4, 3), }",
    "{'descr': [('a', '<f4'), ('b', '%s')], 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (%s, 2), }",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (%s, 0, 3), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-%s, -1), }",
    "__import__('os').system('touch pwned') or %s",
    "(" * 300 + "%s" + ")" * 300,
)
INSIDE = (
    "4",
    "2**62",
    "99999999999999999999",
    "1e9",
    "True",
    "<f4",
    "<U9999999",
    "V9999999999",
    "<M8[ns]",
    "S0",
    "<c8",
    "'",
    "O",
)


def npy(random: Random, data: bytes) -> bytes:
    """With a header that is made up, spoiled bytes, or other numbers under a valid header."""
    if random.random() < 0.3:
        return data[:128] + random.randbytes(len(data) - 128)
    if random.random() < 0.6:
        return mutation.spoil(random, data)
    text = random.choice(HEADERS) % random.choice(INSIDE)
    version = random.choice((1, 2, 3, 4))
    header = (text + "\n").encode()
    size = struct.pack("<H" if version == 1 else "<I", min(len(header), 65_535))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + data[128:]


@target(cases=12_000)
def arrays(prepared: Path) -> Run:
    """.npy files, as recordings of leak and as signals of fields."""
    from whence.fields.data import Arrays
    from whence.leak.data import RecordingFile
    from whence.recordings import read_npy

    valid = samples.arrays()

    def run(case: Case) -> str:
        random = case.random
        name, data = random.choice(list(valid.items()))
        data = npy(random, data)
        case.note(f"{name}: {data[:2000]!r}")
        path = case.folder / f"{name}.npy"
        path.write_bytes(data)
        if random.random() < 0.2:
            return guard.read(lambda: read_npy(path, {2: "(a, b)", 3: "(a, b, c)"}))
        if random.random() < (0.8 if name in ("series", "recordings", "fortran") else 0.2):
            steps = random.choice((2, 8, 40, 1000))
            return guard.read(lambda: RecordingFile(path=str(path), steps=steps).draw(torch.Generator(), 2, "test"))
        shapes = {"signals": (1, 0), "images": (2, 3), "volumes": (3, 0)}
        axes, channels = shapes.get(name, (1, 0)) if random.random() < 0.8 else random.choice(((1, 64), (2, 0), (3, 1)))
        signals = Arrays(path=str(path), axes=axes, channels=channels, size=8, factor=1)
        return guard.read(lambda: [signals.checksum_now(), signals.draw(torch.Generator(), 2, "train")])

    return run


@target(cases=6_000)
def saelens(prepared: Path) -> Run:
    """Autoencoders as SAELens stores them: a configuration and weights."""
    import json

    from whence.features.sae.saelens import imported, imported_checksum

    valid = samples.saelens()
    imported(samples.write_files(prepared / "sae", valid)).encode(torch.zeros(2, 6), torch.zeros(2))  # compiles

    def run(case: Case) -> str:
        random, files = case.random, dict(valid)
        name = random.choice(list(files))
        if name.endswith(".json"):
            files[name] = mutation.spoil_text(random, json.loads(files[name]))
        else:
            files[name] = spoiled_tensors(random, files[name])
        case.note(f"{name}: {files[name][:2000]!r}")
        folder = samples.write_files(case.folder / "sae", files)
        return guard.read(
            lambda: (imported_checksum(folder), imported(folder).encode(torch.zeros(2, 6), torch.zeros(2)))
        )

    return run
