"""Pages and figures of the fields instrument: quality of a trained model, and its analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import plotly.graph_objects as go
from markupsafe import Markup
from torch import Tensor

from whence.errors import UserError
from whence.experiments.results import evaluations_of, final_metrics, read_results
from whence.experiments.table import Table
from whence.fields.analysis import (
    CROPS,
    RANKED,
    SHOWN,
    Analysis,
    FieldAnalysis,
    analysis_images,
    as_images,
    example_signals,
    side_by_side,
)
from whence.fields.cost import COSTS, EncoderCost, cost_request, crossing, encoder_costs
from whence.fields.images import data_uri
from whence.fields.metrics import METHODS, OUTPUTS, FieldsMetrics, MethodQuality, ScaleQuality, methods_in
from whence.fields.run import FieldsRun, load_model
from whence.report.figures import COLOURS, DASHES, figure_of, learning_curves
from whence.report.html import bullets, heading, html_table
from whence.report.shell import plot, regenerate, shell
from whence.store.runs import Store

WIDE, FEW, NARROW = 176, 5, 128
"""Width of an image in CSS pixels: with at most `FEW` columns, and with more"""
DEPENDS_DB, RENDER_DEPENDS_DB = 3.0, 1.0
"""Loss of PSNR under a token swap at which the field, or the render, counts as dependent on the tokens"""
NAMES = {"linear": "linear interpolation", "bicubic": "bicubic interpolation", "kernel": "the least-squares kernel"}


def metrics_of(run: FieldsRun, store: Store) -> FieldsMetrics:
    """Metrics of the last evaluation; `UserError` unless the run has finished and its files are intact."""
    [result] = read_results([run], store)
    if result.state != "finished":
        reason = result.reason or f"it is {result.state}"
        raise UserError(f"run: {run.id} has no results ({reason}). Check it with: whence runs verify {run.id}")
    return final_metrics(result)


def run_page(run: FieldsRun, store: Store, command: str) -> bytes:
    """The page of a finished run. Costs are shown if they have been measured."""
    scales = metrics_of(run, store).test.scales
    model, _ = load_model(store, run.id)
    signals, x = example_signals(run, SHOWN)
    columns = side_by_side(model, signals, x)
    if x.ndim == 3:
        parts = [heading("A held-out signal"), plot(signal_curves(columns, x))]
    else:
        parts = [heading("Held-out images"), image_table(as_images(columns))]
    parts += [
        heading("Quality by scale", "On held-out signals; ×1 is the resolution of the input."),
        plot(quality_over_scales(scales)),
        quality_table(scales),
        heading("Evaluation"),
        bullets(evaluation_notes(run, store)),
        heading("Learning curve", level=3),
        plot(learning_curve(run, store)),
    ]
    costs = encoder_costs(run, store)
    if costs:
        parts += [
            heading("Encoding time and memory by number of tokens", faster_from(costs), level=3),
            plot(_over_tokens(costs, "ms", "encoding time (ms)")),
            plot(_over_tokens(costs, "mib", "encoding memory beyond the model (MiB)")),
        ]
    return _page(run, findings(scales), parts, command)


def analysis_page(artifact: Analysis, store: Store, command: str) -> bytes:
    analysis = artifact.result
    model, run = load_model(store, artifact.request.run)
    images = analysis_images(model, run)
    parts = [heading("Held-out images"), image_table(images)]
    if images:
        pairs = ", ".join(f"{one + 1} → {other + 1}" for one, other in enumerate(analysis.neighbours))
        note = f"Nearest neighbour of each signal by the cosine similarity of mean position tokens: {pairs}."
        parts.append(Markup("<p class=note>{}</p>").format(note))
    parts += [
        heading("Robustness to moved tokens and queries"),
        plot(robustness(analysis)),
        heading("Contribution of each position token"),
        plot(_contributions(analysis.pruning.contribution)),
        heading("Quality by scale", "On held-out signals; ×1 is the resolution of the input."),
        plot(quality_over_scales(metrics_of(run, store).test.scales)),
        heading("Method"),
        bullets(ANALYSIS_NOTES),
    ]
    return _page(run, analysis_findings(analysis), parts, command)


def _page(run: FieldsRun, lines: Sequence[str], parts: Sequence[str], command: str) -> bytes:
    """The first line is the verdict."""
    title = f"whence fields: {run.data}"
    setup = [*list(run.labels().values())[1:], f"{run.training.steps:,} steps", f"seed {run.seed}", f"run {run.id}"]
    head = [heading(title, " · ".join(setup), level=1), Markup("<p class=lead>{}</p>").format(lines[0])]
    return shell(title, [*head, bullets(lines[1:]), *parts, *regenerate(command, run.document())])


# --- quality


def findings(scales: Sequence[ScaleQuality]) -> list[str]:
    """Each output against the baselines, in sentences; the largest scale and the render first."""
    lines = [
        f"At ×{quality.scale}, the {output} reaches {mine.psnr:.2f} dB PSNR on held-out signals: "
        f"{'; '.join(_gap(mine, name, quality.methods[name]) for name in mine.above)}."
        for quality in reversed(scales)
        for output, mine in reversed(quality.methods.items())
        if mine.above
    ]
    return lines or [f"At ×1, the field reaches {scales[0].field.psnr:.2f} dB PSNR on held-out signals."]


def _gap(mine: MethodQuality, name: str, baseline: MethodQuality) -> str:
    gap = mine.psnr - baseline.psnr
    side = "above" if gap >= 0 else "below"
    return f"{abs(gap):.2f} dB {side} {NAMES[name]} (better on {100 * mine.above[name]:.0f} % of the signals)"


def evaluation_notes(run: FieldsRun, store: Store) -> list[str]:
    """How the numbers of a run were obtained."""
    baselines = "Baselines: linear and bicubic interpolation"
    if run.data.build().axes == 2:
        baselines += ", and a linear 7×7 kernel fitted to training signals by least squares"
    return [
        f"{run.training.crops} test signals, which are not used in training. One run with one seed: "
        "'whence fields compare' tests differences over several seeds.",
        "The field decodes the position tokens alone. The render corrects the bicubic enlargement of the input.",
        f"{baselines}.",
        f"{run.parameters():,} parameters{_cost(run, store)}.",
    ]


ANALYSIS_NOTES = (
    "Token swap: each signal is decoded from the position tokens of another signal.",
    "Location noise: Gaussian noise is added to the locations of position tokens. Query offset: the coordinate that "
    "attends to the tokens is shifted from the coordinate that is decoded. Both are in spacings between tokens.",
    "Pruning: tokens are removed from the sequence and from attention. They are ranked by their contribution on "
    f"{RANKED} signals; the PSNR after pruning is measured on the other {CROPS - RANKED}.",
)


def quality_table(scales: Sequence[ScaleQuality]) -> Markup:
    def cell(quality: MethodQuality) -> Markup:
        ssim = "" if quality.ssim is None else Markup("<br><span class=note>{:.3f}</span>").format(quality.ssim)
        return Markup("{:.2f}{}").format(quality.psnr, ssim)

    rows = [
        [name, *(cell(q.methods[name]) if name in q.methods else "–" for q in scales)] for name in methods_in(scales)
    ]
    columns = ["PSNR (dB), SSIM", *(f"×{q.scale}" for q in scales)]
    return html_table(columns, rows, label="Quality by scale", row_headers=True)


def quality_over_scales(scales: Sequence[ScaleQuality]) -> go.Figure:
    figure = figure_of("scale", "PSNR (dB)")
    for place, name in enumerate(METHODS):
        values = {f"×{q.scale}": q.methods[name].psnr for q in scales if name in q.methods}
        if values:
            line = {"color": COLOURS[place], "dash": DASHES[0 if name in OUTPUTS else 1]}
            figure.add_scatter(x=list(values), y=list(values.values()), name=name, mode="lines+markers", line=line)
    return figure


def quality_by_variant(table: Table[FieldsRun]) -> go.Figure:
    """At ×1: every seed as a dot, means with 95 % intervals."""
    figure = figure_of("PSNR of the field at ×1, held-out signals (dB)", "")
    cells = {row.name: row.cell("psnr_x1") for row in table.rows if row.finished}
    dots = [(value, name) for name, cell in cells.items() for value in cell.per_seed.values()]
    figure.add_scatter(
        x=[value for value, _ in dots],
        y=[name for _, name in dots],
        name="seed",
        mode="markers",
        marker={"color": COLOURS[1], "size": 8, "symbol": "circle-open"},
    )
    reach = [(cell.interval[1] - cell.interval[0]) / 2 if cell.interval else 0.0 for cell in cells.values()]
    figure.add_scatter(
        x=[cell.mean for cell in cells.values()],
        y=list(cells),
        name="mean with 95 % interval",
        mode="markers",
        marker={"color": COLOURS[0], "size": 11, "symbol": "diamond"},
        error_x={"type": "data", "array": reach, "color": COLOURS[0]},
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(height=160 + 44 * len(cells))
    return figure


def learning_curve(run: FieldsRun, store: Store) -> go.Figure:
    evaluations = evaluations_of(read_results([run], store)[0])
    curves = {
        split: [{one.step: getattr(one.metrics, split).scales[0].field.psnr for one in evaluations}]
        for split in ("validation", "test")
    }
    return learning_curves(curves, "PSNR of the field at ×1 (dB)", markers=True)


# --- signals


def image_table(columns: Mapping[str, Tensor]) -> Markup:
    """By column, (rows, 3, height, width)."""
    if not columns:
        return Markup("<p class=note>Images are shown for two-dimensional signals only.</p>")
    width = WIDE if len(columns) <= FEW else NARROW
    image = Markup('<img style="width:min({0}px,26vw)" alt="{1}" src="{2}">')
    rows = [
        [image.format(width, name, data_uri(one)) for name, one in zip(columns, row, strict=True)]
        for row in zip(*columns.values(), strict=True)
    ]
    return html_table(list(columns), rows, label="Images side by side")


def signal_curves(columns: Mapping[str, Tensor], x: Tensor) -> go.Figure:
    """The first channel of the first signal, in one dimension."""
    figure = figure_of("coordinate", "value")
    for place, (name, values) in enumerate([*columns.items(), ("input", x)]):
        curve = values[0, 0].tolist()
        coordinates = [(index + 0.5) / len(curve) for index in range(len(curve))]
        line = {} if name == "input" else {"color": COLOURS[place], "dash": DASHES[0 if name == "original" else 1]}
        figure.add_scatter(x=coordinates, y=curve, name=name, mode="lines" if line else "markers", line=line)
    return figure


# --- costs


def _cost(run: FieldsRun, store: Store) -> str:
    cost = COSTS.find(cost_request(run), store)
    if cost is None:
        return ""
    return (
        f". Encoding a signal takes {cost.result.encode:.1f} ms and {cost.result.memory:.1f} MiB, decoding it at ×1 "
        f"{cost.result.decode:.1f} ms (one thread)"
    )


def faster_from(costs: Mapping[str, EncoderCost]) -> str:
    """The number of tokens from which on the first encoder is faster than the second, in a sentence."""
    if len(costs) < 2:
        return ""
    (first, its), (second, other) = costs.items()
    times = its.curve("ms")
    tokens, counts = crossing(times, other.curve("ms")), sorted(times)
    if tokens is None:
        return f"{second} is faster than {first} at up to {counts[-1]:,} tokens."
    if tokens <= counts[0]:
        return f"{first} is faster than {second} at {counts[0]:,} to {counts[-1]:,} tokens."
    return f"{first} is faster than {second} from about {tokens:,.0f} tokens on."


def _over_tokens(costs: Mapping[str, EncoderCost], what: Literal["ms", "mib"], label: str) -> go.Figure:
    figure = figure_of("tokens, including position tokens", label)
    for place, (name, cost) in enumerate(costs.items()):
        curve, line = cost.curve(what), {"color": COLOURS[place], "dash": DASHES[place]}
        figure.add_scatter(x=list(curve), y=list(curve.values()), name=name, mode="lines+markers", line=line)
        figure.update_xaxes(type="log", tickvals=list(curve))
    figure.update_yaxes(type="log")
    return figure


# --- analyses


def analysis_findings(analysis: FieldAnalysis) -> list[str]:
    own, swapped, diversity, pruned = analysis.own, analysis.swapped, analysis.diversity, analysis.pruning.psnr
    depends = "depends" if own - swapped > DEPENDS_DB else "hardly depends"
    lines = [
        f"The field {depends} on its position tokens: with those of another signal, its PSNR changes from {own:.1f} to "
        f"{swapped:.1f} dB."
    ]
    if analysis.render is not None and analysis.render_swapped is not None:
        lost = analysis.render - analysis.render_swapped
        depends = "depends" if lost >= RENDER_DEPENDS_DB else "hardly depends"
        lines.append(f"The render {depends} on them: the same swap costs {lost:.2f} dB.")
    left = ", ".join(f"{value:.1f} dB with {100 * share:g} % removed" for share, value in pruned.items() if share)
    return [
        *lines,
        f"Pruning, least important position tokens first: {pruned[0]:.1f} dB with all, {left}.",
        f"Diversity of position tokens (1 − mean cosine similarity): {diversity.raw:.2f}, and {diversity.centred:.2f} "
        "after mean-centering.",
    ]


def robustness(analysis: FieldAnalysis) -> go.Figure:
    figure = figure_of("spacings between position tokens", "PSNR (dB)")
    curves = {"location noise": analysis.jitter, "query offset": analysis.query_offset}
    for place, (name, values) in enumerate(curves.items()):
        line = {"color": COLOURS[place]}
        figure.add_scatter(x=list(values), y=list(values.values()), name=name, mode="lines+markers", line=line)
    figure.add_hline(y=analysis.swapped, line={"dash": "dot", "color": "#888"}, annotation_text="token swap")
    return figure


def _contributions(contribution: Sequence[float]) -> go.Figure:
    figure = figure_of("position token, sorted by contribution", "loss of PSNR without it (dB)")
    values = sorted(contribution, reverse=True)
    figure.add_bar(x=list(range(len(values))), y=values, marker={"color": COLOURS[0]})
    return figure
