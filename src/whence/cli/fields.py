"""`whence fields …`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from pydantic import Field

from whence.cli.options import Engine, Stored, dispatch, parse, parse_options
from whence.cli.output import print_json, print_table, stderr
from whence.errors import UserError
from whence.formatting import duration
from whence.report.shell import write
from whence.store.runs import Store

if TYPE_CHECKING:
    from whence.fields.metrics import FieldsMetrics
    from whence.fields.run import FieldsRun

ACTIONS = {
    "train": "train a model whose position tokens carry a signal at any resolution",
    "render": "a picture at any size, through a trained model",
    "compare": "vary one part of the model, all else equal, over paired seeds",
    "analyze": "what a trained field relies on: its position tokens swapped, moved, left out, drawn",
    "show": "the results of a trained run again, from the store",
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
linear and bicubic interpolation and the best linear 7×7 kernel."""

RENDER = """Render a picture at any size, from 1×1 to 8192×8192, through a trained run.

  whence fields render 7c1e --input cat.png --size 1024 --out big.png
  whence fields render 7c1e --input cat.png --size 640x480 --output field --out field.png

RUN is the first digits of a run's id ('whence runs list'). --size N is the longer side, WxH both. The picture goes
through the model window by window, so that memory stays bounded."""


COMPARE = """Vary one part of the model, all else equal, over paired seeds; scored is the field, without the render.

  whence fields compare --axis lps --seeds 3           16 to 256 position tokens
  whence fields compare --axis placement --seeds 10    where they stand among the others
  whence fields compare --axis encoder                 bidirectional Mamba against Transformers of the same size
  whence fields compare --axis hyponet                 what turns position tokens into values

The first variant is what the others are held against. Ctrl-C stops cleanly, and the same command goes on."""


ANALYZE = """Analyze a trained field: another signal's position tokens (swap), their locations moved (jitter),
attended to from elsewhere than decoded (query offset), left out one by one (pruning); their features as colours (PCA).

  whence fields analyze 7c1e                          numbers here, images in the report

An analysis is stored: the same command shows it again."""

SHOW = """Show the results of a trained run: quality by scale, and its report.

  whence fields show 7c1e"""


class Timed(Engine):
    """Where and how to run: none of this changes what a run is."""

    minutes: float | None = Field(
        default=None,
        gt=0,
        le=10_000,
        description="instead of --steps: about how long; how many fit is worked out here",
    )


def main(arguments: list[str]) -> int:
    verbs = {"train": _train, "render": _render, "compare": _compare, "analyze": _analyze, "show": _show}
    return dispatch(arguments, HELP, verbs)


def _train(arguments: list[str]) -> int:
    from whence.cli.sweep import train_one
    from whence.fields.cost import fit_minutes, measure_costs
    from whence.fields.images import need_pillow
    from whence.fields.run import FieldsRun

    run, engine = parse(FieldsRun, Timed, arguments, prog="whence fields train", description=TRAIN)
    run.check()
    if run.data.build().axes > 1:
        need_pillow("data")  # for the report
    if engine.minutes is not None:
        store = Store(engine.store)
        store.prepare()
        with stderr.status("Measuring the speed of this machine …"):
            run, pace = fit_minutes(run, engine.minutes, store, engine.threads)
        each = f"{1000 * pace.step_seconds:.0f} ms each"
        stderr.print(f"{pace.steps} steps in about {engine.minutes:g} minutes ({each})", highlight=False)
    if engine.print_spec:
        print_json({"id": run.id, **run.document()})
        return 0

    def on_finished(store: Store, status: dict[str, Any]) -> None:
        with stderr.status("Measuring costs …") as line:
            measure_costs(run, store, lambda text: line.update(f"{text} …"))
        _print_run(run, store, shlex.join(["whence", "fields", "train", *arguments]))

    return train_one(run, engine, on_finished)


def _show(arguments: list[str]) -> int:
    from whence.fields.page import metrics_of
    from whence.fields.run import load_model

    options, words = parse_options(Stored, arguments, prog="whence fields show RUN", description=SHOW, words=True)
    store = Store(options.store)
    _, run = load_model(store, _one(words))
    if options.json_:
        print_json({"run": run.id, **metrics_of(run, store).model_dump(mode="json")})
    else:
        _print_run(run, store, shlex.join(["whence", "fields", "show", *arguments]))
    return 0


def _one(words: list[str]) -> str:
    if len(words) != 1:
        raise UserError("run: name one run. See 'whence runs list'.", field="run")
    return words[0]


def _print_run(run: FieldsRun, store: Store, command: str) -> None:
    from whence.fields.page import metrics_of, run_page

    print_quality(metrics_of(run, store))
    print(f"report  {write('fields', run_page(run, store, command), store.reports)}")


def print_quality(metrics: FieldsMetrics) -> None:
    from whence.fields.metrics import METHODS

    test = metrics.test
    names = [name for name in METHODS if any(name in quality.methods for quality in test.scales)]
    ours = [name for name in names if name in ("field", "render")]
    rows = []
    for quality in test.scales:
        made = quality.methods
        cells = [f"{made[name].psnr:.2f}" if name in made else "–" for name in names]
        ssim = [_number(made[name].ssim if name in made else None) for name in ours]
        best = made[ours[-1]].above if ours[-1] in made else {}
        above = [f"{100 * best[name]:.0f} %" if name in best else "–" for name in ("bicubic", "kernel")]
        rows.append([f"×{quality.scale}", *cells, *ssim, *above])
    print_table(
        "PSNR (dB) on held-out signals",
        ["scale", *names, *(f"SSIM {name}" for name in ours), f"{ours[-1]} above bicubic", "above kernel"],
        rows,
    )
    print(
        f"  field: with another signal's position tokens {test.swap.psnr:.1f} dB instead of {test.swap.own:.1f}; "
        f"diversity of position tokens {test.diversity.raw:.2f}, centred {test.diversity.centred:.2f}\n"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _compare(arguments: list[str]) -> int:
    from whence.cli.compare_verb import compare
    from whence.fields.instrument import FIELDS

    return compare(FIELDS, arguments, COMPARE)


def _render(arguments: list[str]) -> int:
    from whence.fields.config import RenderConfig
    from whence.fields.instrument import render

    class RenderOptions(Stored, RenderConfig):
        """What to render, and how."""

    options, words = parse_options(
        RenderOptions, arguments, prog="whence fields render RUN", description=RENDER, words=True
    )
    config = RenderConfig(
        run=_one(words), input=options.input, size=options.size, out=options.out, output=options.output
    )
    with stderr.status("Rendering …") as line:
        artifact = render(config, Store(options.store), lambda text: line.update(f"{text} …"))
    request, result = artifact.request, artifact.result
    source, size = f"{result.input_width}x{result.input_height}", f"{request.width}x{request.height}"
    if options.json_:
        shown = {"run": request.run, "output": request.output, "from": source, "to": size, "out": config.out}
        command = shlex.join(["whence", "fields", "render", *arguments])
        print_json({**shown, "seconds": result.seconds, "checksum": result.checksum, "command": command})
    else:
        print(f"{request.output}  {source} → {size}  {duration(result.seconds)}  {config.out}")
    return 0


def _analyze(arguments: list[str]) -> int:
    options, words = parse_options(Stored, arguments, prog="whence fields analyze RUN", description=ANALYZE, words=True)
    from whence.fields.config import AnalyzeConfig
    from whence.fields.instrument import analyze_run
    from whence.fields.page import analysis_findings, analysis_page
    from whence.fields.run import load_model

    store, command = Store(options.store), shlex.join(["whence", "fields", "analyze", *arguments])
    with stderr.status("Analyzing …") as line:
        artifact = analyze_run(AnalyzeConfig(run=_one(words)), store, lambda text: line.update(f"{text} …"))
        analysis = artifact.result
        _, run = load_model(store, artifact.request.run)
        report = write("fields", analysis_page(run, analysis, store, command), store.reports)
    if options.json_:
        print_json({"run": run.id, **analysis.model_dump(mode="json"), "report": str(report), "command": command})
        return 0
    for text in analysis_findings(analysis):
        print(f"  {text}")
    for name, values in (("noise on locations", analysis.jitter), ("offset of queries", analysis.query_offset)):
        print(f"  {name} (spacings): " + "  ".join(f"{by:g}: {value:.1f}" for by, value in values.items()) + " dB")
    print(f"report  {report}")
    return 0
