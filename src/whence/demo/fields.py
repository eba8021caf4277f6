"""Fields: a held-out photograph at four times its size, and what the position tokens carry.

The model comes with whence, because its training takes longer than the tour: `checkpoint/` holds the folder of a
finished run, as `whence fields train` stores it. A new one takes its place by

    whence fields train --data photos --store NEW && cp -r NEW/runs/ID src/whence/demo/checkpoint/
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path

from markupsafe import Markup
from torch import Tensor

from whence.demo.section import Content, Context, Requirement, Section
from whence.errors import UserError
from whence.experiments.options import command
from whence.fields import images
from whence.fields.analysis import analysis_images
from whence.fields.baselines import resize
from whence.fields.config import AnalyzeConfig, RenderConfig
from whence.fields.data import IMAGE, PHOTOS
from whence.fields.instrument import ANALYZE, RENDER
from whence.fields.metrics import psnr
from whence.fields.page import analysis_findings, image_table, metrics_of, quality_table, robustness
from whence.fields.run import FieldsRun, load_model
from whence.formatting import duration
from whence.report.html import bullets, heading, render
from whence.report.shell import plot
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.runs import Store
from whence.system import packaged_file

CHECKPOINT = Path(str(resources.files("whence.demo"))) / "checkpoint"
PHOTOGRAPH = PHOTOS["test"][IMAGE][0]
"""Of the photographs that no model is trained on"""
SCALE = 4
LOW, HIGH = "photograph.png", f"photograph-x{SCALE}.png"
"""The input and the render, beside the page"""
CARRIED = ("original", "field", "token features (PCA)", "most attended token")
"""Columns of the analysis that are shown"""
SHOWN = 3
"""Crops in that table"""
GALLERY = """\
<div class=gallery>
{% for caption, note, uri, pixelated in pictures %}
<figure><img src="{{ uri }}" alt="{{ caption }}"{% if pixelated %} class=pixelated{% endif %}>
<figcaption><b>{{ caption }}</b> {{ note }}</figcaption></figure>
{% endfor %}</div>"""


def build(context: Context) -> Content:
    store, progress = context.store, context.progress
    progress.phase(0.3, "rendering a photograph")
    run_id = install_checkpoint(store)
    model, run = load_model(store, run_id)
    assert isinstance(run, FieldsRun)
    truth = photograph()
    low = context.out / LOW
    images.write(low, resize(truth[None], [count // SCALE for count in truth.shape[1:]], "area")[0])
    size = f"{truth.shape[2]}x{truth.shape[1]}"
    shared = {"run": run_id, "input": str(low), "size": size, "out": str(context.out / HIGH)}
    rendering = RENDER.run(RenderConfig.read(shared), store, progress.note)
    pictures = compare(truth, images.read(low), images.read(context.out / HIGH))
    scores = {name: float(psnr(picture[None], truth[None])) for name, picture in pictures.items()}
    progress.phase(0.6, "analyzing the position tokens")
    analysis = ANALYZE.run(AnalyzeConfig(run=run_id), store, progress.note).result
    progress.phase(0.1, "drawing")
    columns = {name: rows[:SHOWN] for name, rows in analysis_images(model, run).items() if name in CARRIED}
    made = command(("fields", "train"), FieldsRun, run.model_dump(mode="json", exclude_defaults=True))
    body = [
        _gallery(pictures, scores, truth, images.read(low)),
        Markup("<p class=note>{}</p>").format(
            f"{PHOTOGRAPH} of scikit-image, averaged to {low_size(truth)} pixels and enlarged to {size} in "
            f"{duration(rendering.result.seconds)}. It is held out: photographs are split into training and test data "
            "as wholes. PSNR over all pixels, in 8 bits; higher is better. Errors are shown four times as large."
        ),
        heading("Quality by scale, on crops of held-out photographs", level=3),
        quality_table(metrics_of(run, store).test.scales),
        heading("What the position tokens carry", level=3),
        bullets(analysis_findings(analysis)),
        image_table(columns),
        plot(robustness(analysis)),
        Markup(
            "<p class=note>Run <code>{}</code>, {:,} parameters, comes with whence. It was trained by "
            "<code>{}</code>.</p>"
        ).format(run_id, run.parameters(), made),
    ]
    at = shlex.join(context.store_option)
    return Content(
        headline=f"A photograph at ×{SCALE}: {scores['whence']:.2f} dB, bicubic {scores['bicubic']:.2f} dB.",
        picture=_card(pictures, images.read(low)),
        verdict=verdict(scores),
        body=body,
        command=command(("fields", "render"), RenderConfig, shared, context.store_option),
        further={
            f"whence fields render {run_id[:6]} --input YOUR.jpg --size 2048 --out big.png {at}": "Enlarges your "
            "own picture with this model.",
            "whence fields train --data photos --minutes 10": "Trains a model here; --data DIR takes your pictures.",
        },
        numbers={"run": run_id, "psnr": scores, "analysis": analysis.model_dump(mode="json")},
    )


def install_checkpoint(store: Store) -> str:
    """The packaged run in a store, which has it already or gets a copy. Returns its id."""
    source = next(iter(disk.entries(CHECKPOINT)), None)
    if source is None:
        raise UserError(
            "checkpoint: no run comes with this copy of whence. Train one: whence fields train --data photos"
        )
    store.prepare()
    folder = store.folder(source.name)
    with suppress(OSError, CorruptFileError):
        if folder.written_status().state == "finished":
            return source.name
    disk.make_directory(folder.path)
    files = disk.entries(source)
    for path in sorted(files, key=lambda path: path.name == "status.json"):  # last: it states that the rest is there
        disk.write_atomically(folder.path / path.name, disk.read(path))
    return source.name


def photograph() -> Tensor:
    """(3, height, width), cut to whole multiples of the scale."""
    package, folder = IMAGE
    image = images.read(packaged_file(package, f"{folder}/{PHOTOGRAPH}", field="data", what=PHOTOGRAPH))
    height, width = (count - count % SCALE for count in image.shape[1:])
    return image[:, :height, :width]


def low_size(truth: Tensor) -> str:
    return "×".join(str(count // SCALE) for count in reversed(truth.shape[1:]))


def compare(truth: Tensor, low: Tensor, rendered: Tensor) -> dict[str, Tensor]:
    """Bicubic interpolation and the render, both in 8 bits as files are."""
    bicubic = resize(low[None], truth.shape[1:], "bicubic")[0].clamp(0, 1)
    return {"bicubic": (bicubic * 255).round() / 255, "whence": rendered}


def verdict(scores: Mapping[str, float]) -> str:
    gain = scores["whence"] - scores["bicubic"]
    word = "above" if gain > 0 else "below"
    return (
        f"On this photograph at ×{SCALE} the render reaches {scores['whence']:.2f} dB and bicubic interpolation "
        f"{scores['bicubic']:.2f} dB: {abs(gain):.2f} dB {word} it."
    )


def _gallery(pictures: Mapping[str, Tensor], scores: Mapping[str, float], truth: Tensor, low: Tensor) -> Markup:
    shown = [("input", low_size(truth), images.data_uri(low), True)]
    shown += [(name, f"{scores[name]:.2f} dB", images.data_uri(picture), False) for name, picture in pictures.items()]
    shown += [("original", "", images.data_uri(truth), False)]
    for name, picture in pictures.items():
        error = (4 * (picture - truth).abs().mean(0, keepdim=True)).clamp(0, 1)
        shown.append((f"error of {name}", "× 4", images.data_uri(error), False))
    return render(GALLERY, pictures=shown)


def _card(pictures: Mapping[str, Tensor], low: Tensor) -> Markup:
    """The middle of the photograph, before and after."""
    high = _middle(pictures["whence"], 1)
    shown = [("input", "", images.data_uri(_middle(low, SCALE)), True), (f"×{SCALE}", "", images.data_uri(high), False)]
    return render(GALLERY, pictures=shown)


def _middle(image: Tensor, scale: int) -> Tensor:
    side = 160 // scale
    top, left = ((count - side) // 2 for count in image.shape[1:])
    return image[:, top : top + side, left : left + side]


SECTION = Section(
    name="fields",
    title="Can position tokens carry a picture at any resolution?",
    question="A bidirectional Mamba encodes a picture into 64 position tokens, and a decoder reads a colour at any "
    "coordinate. A residual render adds detail to the enlarged input.",
    build=build,
    seconds={"full": 20, "quick": 15},
    requires=(
        Requirement("pillow", "PIL"),
        Requirement("scikit-image"),
        Requirement("scikit-learn"),
    ),
)
