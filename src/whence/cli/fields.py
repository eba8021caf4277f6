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

TRAIN = """Train a field, which renders signals at any resolution from learnable position tokens

  whence fields train --data photos --minutes 10      # 10 packaged photographs, in about 10 minutes
  whence fields train --data ./images                 # a directory of your own images; some are held out
  whence fields train --lps 128 --placement hierarchical --steps 2000     # another architecture
  whence fields train --config field.yaml             # options from a file; flags take precedence

The model (after MAMBA-GINR) interleaves learnable position tokens with the patches of a signal and passes both through
a sequence mixer. It has two outputs, which are evaluated separately:

  field     decodes the position tokens alone, at any coordinate
  render    corrects the bicubic enlargement of the input; a practical upscaler

Both are evaluated on held-out signals against linear interpolation, bicubic interpolation and a least-squares 7×7
kernel. Press Ctrl-C to stop; the same command resumes from the last checkpoint."""

RENDER = """Render an image with a trained field at any size up to 8192×8192 pixels

  whence fields render 7c1e --input cat.png --size 1024 --out big.png      # longer side 1024 pixels
  whence fields render 7c1e --input cat.png --size 640x480 --output field --out field.png   # position tokens alone

RUN is the id of a run of 'whence fields train', or its first digits ('whence runs list' lists ids). The image is
processed in windows, so that memory stays bounded at any size."""

COMPARE = """Compare variants of one part of a field model over paired seeds

  whence fields compare --axis lps --seeds 6          # 16 to 256 position tokens
  whence fields compare --axis placement --seeds 6    # placements of position tokens
  whence fields compare --axis encoder --seeds 6      # bidirectional Mamba and Transformers of equal size
  whence fields compare --axis hyponet --seeds 6      # decoders from position tokens to values

Variants are compared by the PSNR of the field (without the render) at the resolution of the input, on held-out signals.
Each variant is tested against the first one. Verdicts need at least 6 seeds. Press Ctrl-C to stop; the same command
resumes."""

ANALYZE = """Analyze how a trained field uses its position tokens

  whence fields analyze 7c1e                          # prints the findings and writes a report with images

The analysis measures the PSNR of the field under four interventions:

  swap            position tokens of another signal
  jitter          noise added to the locations of tokens
  query offset    attention from another coordinate than the decoded one
  pruning         tokens removed, least important first

The report also shows the features of tokens at each pixel as colours (PCA). It takes about a minute; the result is
stored, and the same command shows it again."""

SHOW = """Show the results of a trained field and write its report

  whence fields show 7c1e                             # quality by scale; the report goes to the store
  whence fields show 7c1e --out field.html            # write the report to a file"""


class TrainOptions(EngineOptions):
    """How to run. None of these options changes the id of the run."""

    minutes: float | None = Field(
        default=None,
        gt=0,
        le=10_000,
        description="train for about this many minutes: --steps is set from the measured speed of this machine",
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
        run, budget = fit_minutes(run, options.minutes, store, options.threads)
    step_ms = 1000 * budget.step_seconds
    print_note(f"Training for {budget.steps:,} steps, about {options.minutes:g} minutes ({step_ms:.0f} ms per step)")
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
    better = [f"{ours[-1]} better than {name}" for name in ("bicubic", "kernel")]
    columns = ["scale", *names, *(f"SSIM {name}" for name in ours), *better]
    print_table("PSNR (dB) on held-out signals", columns, rows)
    print_text(
        f"  Token swap: the PSNR of the field is {test.swap.own:.1f} dB with its own position tokens, "
        f"{test.swap.psnr:.1f} dB with those of another signal.\n"
        f"  Diversity of position tokens: {test.diversity.raw:.2f} ({test.diversity.centred:.2f} mean-centered).\n"
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
    for name, values in (("location noise", analysis.jitter), ("query offset", analysis.query_offset)):
        levels = ", ".join(f"{value:.1f} dB at {by:g}" for by, value in values.items())
        print_text(f"  PSNR by {name} (in token spacings): {levels}")


VERBS = {
    "train": instrument.train("fields", TRAIN, TrainOptions, _fit_minutes, _print_metrics, _run_page),
    "compare": instrument.compare("fields", COMPARE),
    "render": instrument.action("fields", "render", RENDER, _print_rendering),
    "analyze": instrument.action("fields", "analyze", ANALYZE, _print_analysis, _analysis_page),
    "show": instrument.show("fields", SHOW, _run_page, _print_metrics),
    "report": report_verb("fields"),
}
