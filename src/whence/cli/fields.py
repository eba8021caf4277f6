"""`whence fields …`."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from whence.cli.options import Engine, Stored, dispatch, parse, parse_options
from whence.cli.output import print_json, print_table, stderr
from whence.errors import UserError
from whence.formatting import duration

if TYPE_CHECKING:
    from whence.fields.run import FieldsRun

ACTIONS = {
    "train": "train a model whose position tokens carry a signal at any resolution",
    "render": "a picture at any size, through a trained model",
    "ablate": "vary one part of the model, all else equal, over paired seeds",
    "analyse": "what a trained field rests on: its position tokens swapped, moved, left out, looked at",
}
HELP = """whence fields: a signal at any resolution, from learnable position tokens (MAMBA-GINR)

usage: whence fields ACTION [options]

""" + "".join(f"  {action:<8} {text}\n" for action, text in ACTIONS.items())
HELP += "\nEvery action: --help teaches it, --json prints one JSON document on standard output.\n"

TRAIN = """Train one field model: signal → tokens, position tokens between them, a mixer, values at any point.

  whence fields train --data photos --minutes 10      photographs of scikit-image and scikit-learn
  whence fields train --data DIR                      your own pictures, some of them held out
  whence fields train --lps 128 --placement hierarchical --steps 2000

Two outputs are learned and never confused: the field, where everything comes through the position tokens, and the
residual render, which sees the enlarged input as well. Both are reported on pictures never trained on, beside
linear and cubic interpolation and the best linear 7×7 kernel."""

RENDER = """Render a picture at any size, from 1×1 to 8192×8192, through a trained run.

  whence fields render 7c1e --input cat.png --size 1024 --out big.png
  whence fields render 7c1e --input cat.png --size 640x480 --output field --out field.png

RUN is the first digits of a run's id ('whence runs list'). --size N is the longer side, WxH both. The picture goes
through the model window by window, so that memory stays bounded."""


ABLATE = """Vary one part of the model, all else equal, over paired seeds; scored is the field, without the render.

  whence fields ablate --axis lps --seeds 3           16 to 256 position tokens
  whence fields ablate --axis placement --seeds 10    where they stand among the others
  whence fields ablate --axis encoder                 bidirectional Mamba against Transformers of the same size
  whence fields ablate --axis hyponet                 what turns position tokens into values

The first variant is what the others are held against. Ctrl-C stops cleanly, and the same command goes on."""


ANALYSE = """Look into a trained field: another signal's position tokens (swap), their places moved (jitter), listened
to elsewhere than asked (decoupled queries), left out one by one (pruning); what they say as colours (PCA).

  whence fields analyse 7c1e                          numbers here, pictures in the report"""


class Timed(Engine):
    """Where and how to run: none of this changes what a run is."""

    minutes: float | None = Field(
        default=None,
        gt=0,
        le=10_000,
        description="instead of --steps: about how long; how many fit is worked out here",
    )


class Rendering(Stored):
    """What to render, and how."""

    input: str = Field(default="", description="a picture")
    size: str = Field(default="1024", description="the longer side, or WIDTHxHEIGHT")
    out: str = Field(default="", description="where to write it: .png, .jpg, .webp, .tif, .bmp")
    output: Literal["field", "render"] = Field(
        default="render", description="field: through the position tokens alone; render: with the enlarged input"
    )


def main(arguments: list[str]) -> int:
    return dispatch(arguments, HELP, {"train": _train, "render": _render, "ablate": _ablate, "analyse": _analyse})


# --- train


def _train(arguments: list[str]) -> int:
    from whence.cli.sweep import train_one
    from whence.fields.cost import for_minutes
    from whence.fields.images import need_pillow
    from whence.fields.run import FieldsRun
    from whence.store.runs import Store

    run, engine = parse(FieldsRun, Timed, arguments, prog="whence fields train", description=TRAIN)
    run.check()
    if run.data.build().axes > 1:
        need_pillow("data")  # for the report
    if engine.minutes is not None:
        store = Store(engine.store)
        store.prepare()
        with stderr.status("measuring how fast this machine is …"):
            run, told = for_minutes(run, engine.minutes, store, engine.threads)
        stderr.print(told, highlight=False)
    if engine.print_spec:
        print_json({"id": run.id, **run.document()})
        return 0

    def tell(store: Store, status: dict[str, Any]) -> None:
        print_quality(status)
        print(f"report  {_report(run, store, shlex.join(['whence', 'fields', 'train', *arguments]))}")

    return train_one(run, engine, tell)


def _report(run: FieldsRun, store: Any, again: str) -> Path:
    from whence.fields.analysis import SHOWN, drawn, side_by_side
    from whence.fields.cost import beside_a_transformer, by_tokens, milliseconds
    from whence.fields.page import run_page
    from whence.fields.run import load
    from whence.report.shell import write

    folder, spec = store.folder(run.id), run.model
    with stderr.status("making the report …") as status:
        model, _ = load(store, run.id)
        signals, x = drawn(run, SHOWN)
        columns = side_by_side(model, signals, x)
        costs = {}
        for name, fields in beside_a_transformer(spec, run.labels()["encoder"]).items():
            status.update(f"time and memory of {name} by number of tokens …")
            costs[name] = by_tokens(fields)
        facts = {"parameters": run.parameters(), **milliseconds(model)}
        page = run_page(run, folder.status(), folder.evaluations(), columns, x, facts, costs, again)
        return write("fields", page, store.reports)


def print_quality(status: dict[str, Any]) -> None:
    found = status["latest"]["test"]
    there = {name for made in found["scales"].values() for name in made}
    names = [name for name in ("field", "render", "linear", "cubic", "kernel") if name in there]
    ours = [name for name in names if name in ("field", "render")]
    rows = []
    for scale, made in found["scales"].items():
        cells = [f"{made[name]['psnr']:.2f}" if name in made else "–" for name in names]
        alike = [_number(made.get(name, {}).get("ssim")) for name in ours]
        best = made.get(ours[-1], {}).get("above", {})
        above = [f"{100 * best[name]:.0f} %" if name in best else "–" for name in ("cubic", "kernel")]
        rows.append([f"×{scale}", *cells, *alike, *above])
    print_table(
        "PSNR (dB) on signals never trained on",
        ["scale", *names, *(f"SSIM {name}" for name in ours), f"{ours[-1]} above cubic", "above kernel"],
        rows,
    )
    swap = found["swap"]
    print(
        f"  field: with another signal's position tokens {swap['psnr']:.1f} dB instead of {swap['own']:.1f}; "
        f"diversity of position tokens {found['diversity']['raw']:.2f}, centred {found['diversity']['centred']:.2f}\n"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


# --- render


def _render(arguments: list[str]) -> int:
    options, words = parse_options(
        Rendering, arguments, prog="whence fields render RUN", description=RENDER, words=True
    )
    if len(words) != 1:
        raise UserError("run: name one run. See 'whence runs list'.", field="run")
    for field in ("input", "out"):
        if not getattr(options, field):
            raise UserError(f"{field}: name a file: --{field} FILE.", field=field)
    from whence.fields import images
    from whence.fields.decode import enlarge, size_of
    from whence.fields.run import load
    from whence.store.runs import Store

    model, run = load(Store(options.store), words[0])
    if len(model.size) != 2 or model.channels != 3:
        raise UserError(f"run: {run.id} is not about pictures. Allowed: runs on pictures.", field="run")
    if options.output == "render" and model.renderer is None:
        raise UserError("output: this run has no residual render. Allowed: --output field.", field="output")
    picture = images.read(options.input)
    size = size_of(options.size, *picture.shape[1:])
    images.check_out(options.out)
    started = time.perf_counter()
    with stderr.status("rendering …") as status:
        made = enlarge(
            model, picture, size, options.output, lambda done, all_: status.update(f"rendering {done}/{all_} …")
        )
        images.write(options.out, made)
    seconds = time.perf_counter() - started
    facts = {
        "run": run.id,
        "output": options.output,
        "from": f"{picture.shape[2]}x{picture.shape[1]}",
        "to": f"{size[1]}x{size[0]}",
        "out": str(Path(options.out)),
        "seconds": round(seconds, 3),
    }
    if options.json_:
        print_json({**facts, "again": shlex.join(["whence", "fields", "render", *arguments])})
    else:
        print(f"{facts['output']}  {facts['from']} → {facts['to']}  {duration(seconds)}  {facts['out']}")
    return 0


# --- ablate


def _ablate(arguments: list[str]) -> int:
    from whence.cli.compare_verb import compare
    from whence.fields.instrument import FIELDS

    return compare(FIELDS, arguments, ABLATE)


# --- analyse


def _analyse(arguments: list[str]) -> int:
    options, words = parse_options(Stored, arguments, prog="whence fields analyse RUN", description=ANALYSE, words=True)
    if len(words) != 1:
        raise UserError("run: name one run. See 'whence runs list'.", field="run")
    from whence.fields.analysis import analyse
    from whence.fields.page import analysis_page, findings
    from whence.fields.run import load
    from whence.report.shell import write
    from whence.store.runs import Store

    store = Store(options.store)
    model, run = load(store, words[0])
    with stderr.status("looking …") as status:
        found = analyse(model, run, lambda told: status.update(f"{told} …"))
        again = shlex.join(["whence", "fields", "analyse", *arguments])
        page = analysis_page(run, found, store.folder(run.id).status(), again)
        report = write("fields", page, store.reports)
    if options.json_:
        print_json({"run": run.id, **found.numbers, "report": str(report), "again": again})
        return 0
    for line in findings(found.numbers):
        print(f"  {line}")
    for name, values in (("jitter", "places moved"), ("listening", "listened elsewhere")):
        told = "  ".join(f"{by}: {value:.1f}" for by, value in found.numbers[name].items())
        print(f"  {values} by (spacings): {told} dB")
    print(f"report  {report}")
    return 0
