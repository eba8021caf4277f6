"""`whence fields …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from whence.cli import instrument
from whence.cli.options import EngineOptions
from whence.cli.output import print_note, print_table, print_text, stderr
from whence.cli.report import report_verb
from whence.formatting import duration
from whence.store.runs import Store

if TYPE_CHECKING:
    from whence.experiments.instrument import OnProgress
    from whence.fields.analysis import Analysis
    from whence.fields.instrument import Rendering, RenderRequest
    from whence.fields.run import FieldsRun
    from whence.store.artifacts import Artifact

TRAIN = """Train one field model: signal → tokens, position tokens between them, a mixer, values at any point.

  whence fields train --data photos --minutes 10      photographs of scikit-image and scikit-learn
  whence fields train --data DIR                      your own images, some of them held out
  whence fields train --lps 128 --placement hierarchical --steps 2000

Two outputs are learned and never confused: the field, where everything comes through the position tokens, and the
residual render, which sees the enlarged input as well. Both are reported on held-out signals, beside
linear and bicubic interpolation and the best linear 7×7 kernel."""

RENDER = """Render an image at any size, from 1×1 to 8192×8192, through a trained run.

  whence fields render 7c1e --input cat.png --size 1024 --out big.png
  whence fields render 7c1e --input cat.png --size 640x480 --output field --out field.png

RUN is the first digits of a run's id ('whence runs list'). --size N is the longer side, WxH both. The image goes
through the model window by window, so that memory stays bounded."""

COMPARE = """Compare variants of one part of the model, all else equal, over paired seeds

  whence fields compare --axis lps --seeds 3           16 to 256 position tokens
  whence fields compare --axis placement --seeds 10    where they stand among the others
  whence fields compare --axis encoder                 bidirectional Mamba against Transformers of the same size
  whence fields compare --axis hyponet                 what turns position tokens into values

Scored is the field, without the render. The first variant is what the others are held against. Ctrl-C stops cleanly,
and the same command resumes."""

ANALYZE = """Analyze what a trained field relies on: its position tokens swapped, moved, left out, drawn

  whence fields analyze 7c1e                          numbers here, images in the report

Position tokens are taken from another signal (swap), their locations are moved (jitter), they are attended to from
elsewhere than decoded (query offset) and left out one by one (pruning); the report shows their features as colours
(PCA). An analysis is stored: the same command shows it again."""

SHOW = """Show the results of a trained run: quality by scale, and its report

  whence fields show 7c1e
  whence fields show 7c1e --out field.html"""


class TrainOptions(EngineOptions):
    """Where and how to run: none of this changes what a run is."""

    minutes: float | None = Field(
        default=None,
        gt=0,
        le=10_000,
        description="instead of --steps: about how long; how many fit is worked out here",
    )


def _fit_minutes(run: FieldsRun, options: TrainOptions) -> FieldsRun:
    from whence.fields.cost import fit_minutes
    from whence.fields.images import need_pillow

    run.check()
    if run.data.build().axes > 1:
        need_pillow("data")  # for the report
    if options.minutes is None:
        return run
    store = Store(options.store)
    store.prepare()
    with stderr.status("Measuring the speed of this machine …"):
        run, pace = fit_minutes(run, options.minutes, store, options.threads)
    print_note(f"{pace.steps} steps in about {options.minutes:g} minutes ({1000 * pace.step_seconds:.0f} ms each)")
    return run


def _run_page(run: FieldsRun, store: Store, command: str, on_progress: OnProgress) -> bytes:
    from whence.fields.cost import measure_costs
    from whence.fields.page import run_page

    measure_costs(run, store, on_progress)
    return run_page(run, store, command)


def _print_metrics(run: FieldsRun, store: Store) -> None:
    from whence.fields.page import OUTPUTS, methods_in, metrics_of

    test = metrics_of(run, store).test
    names = methods_in(test.scales)
    ours = [name for name in names if name in OUTPUTS]
    rows = []
    for quality in test.scales:
        made = quality.methods
        psnr = [f"{made[name].psnr:.2f}" if name in made else "–" for name in names]
        ssim = [_number(made[name].ssim if name in made else None) for name in ours]
        best = made[ours[-1]].above if ours[-1] in made else {}
        above = [f"{100 * best[name]:.0f} %" if name in best else "–" for name in ("bicubic", "kernel")]
        rows.append([f"×{quality.scale}", *psnr, *ssim, *above])
    columns = ["scale", *names, *(f"SSIM {name}" for name in ours), f"{ours[-1]} above bicubic", "above kernel"]
    print_table("PSNR (dB) on held-out signals", columns, rows)
    print_text(
        f"  field: with another signal's position tokens {test.swap.psnr:.1f} dB instead of {test.swap.own:.1f}; "
        f"diversity of position tokens {test.diversity.raw:.2f}, centred {test.diversity.centred:.2f}\n"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _print_rendering(artifact: Artifact[RenderRequest, Rendering]) -> None:
    request, result = artifact.request, artifact.result
    source, size = f"{result.input_width}x{result.input_height}", f"{request.width}x{request.height}"
    print_text(f"{request.output}  {source} → {size}  {duration(result.seconds)}")


def _analysis_page(artifact: Analysis, store: Store, command: str, on_progress: OnProgress) -> bytes:
    from whence.fields.page import analysis_page

    return analysis_page(artifact, store, command)


def _print_analysis(artifact: Analysis) -> None:
    from whence.fields.page import analysis_findings

    analysis = artifact.result
    for text in analysis_findings(analysis):
        print_text(f"  {text}")
    for name, values in (("noise on locations", analysis.jitter), ("offset of queries", analysis.query_offset)):
        print_text(f"  {name} (spacings): " + "  ".join(f"{by:g}: {value:.1f}" for by, value in values.items()) + " dB")


VERBS = {
    "train": instrument.train("fields", TRAIN, TrainOptions, _fit_minutes, _print_metrics, _run_page),
    "compare": instrument.compare("fields", COMPARE),
    "render": instrument.action("fields", "render", RENDER, _print_rendering),
    "analyze": instrument.action("fields", "analyze", ANALYZE, _print_analysis, _analysis_page),
    "show": instrument.show("fields", SHOW, _run_page, _print_metrics),
    "report": report_verb("fields"),
}
