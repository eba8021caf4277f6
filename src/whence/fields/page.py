"""Pages and figures of the fields instrument: what a trained model makes of signals, and what it relies on."""

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
"""Of one image on the page, in CSS pixels: where there are few beside each other, and where there are more."""


def metrics_of(run: FieldsRun, store: Store) -> FieldsMetrics:
    """Of the last evaluation; `UserError` unless the run has finished and is whole."""
    [result] = read_results([run], store)
    if result.state != "finished":
        reason = result.reason or f"it is {result.state}"
        raise UserError(f"run: {run.id} has no results ({reason}). See 'whence runs verify {run.id}'.")
    return final_metrics(result)


def run_page(run: FieldsRun, store: Store, command: str) -> bytes:
    """What a finished run came to. Costs are shown if they have been measured."""
    scales = metrics_of(run, store).test.scales
    model, _ = load_model(store, run.id)
    signals, x = example_signals(run, SHOWN)
    columns = side_by_side(model, signals, x)
    parts = [
        Markup("<p>{:,} parameters{}</p>").format(run.parameters(), _cost(run, store)),
        heading("Quality by scale, on held-out signals"),
        quality_table(scales),
        plot(quality_over_scales(scales)),
    ]
    if x.ndim == 3:
        parts += [heading("Held-out signals"), plot(signal_curves(columns, x))]
    else:
        parts += [heading("Held-out images"), image_table(as_images(columns))]
    parts += [heading("Learning curve"), plot(learning_curve(run, store))]
    costs = encoder_costs(run, store)
    if costs:
        parts += [
            heading("Time and memory by number of tokens", faster_from(costs)),
            plot(_over_tokens(costs, "ms", "milliseconds to encode")),
            plot(_over_tokens(costs, "mib", "MiB to encode, beyond the model")),
        ]
    return _page(run, findings(scales), parts, command)


def analysis_page(artifact: Analysis, store: Store, command: str) -> bytes:
    analysis = artifact.result
    model, run = load_model(store, artifact.request.run)
    images = analysis_images(model, run)
    parts = [heading("Held-out images"), image_table(images)]
    if images:
        pairs = ", ".join(f"{one + 1} → {other + 1}" for one, other in enumerate(analysis.neighbours))
        parts.append(heading("Nearest neighbours by mean position token", f"signal → nearest: {pairs}"))
    parts += [
        heading("Quality by scale"),
        plot(quality_over_scales(metrics_of(run, store).test.scales)),
        heading("What the field relies on"),
        plot(robustness(analysis)),
        heading("What each position token contributes"),
        plot(_contributions(analysis.pruning.contribution)),
    ]
    return _page(run, analysis_findings(analysis), parts, command)


def _page(run: FieldsRun, lines: Sequence[str], parts: Sequence[str], command: str) -> bytes:
    title = f"whence fields: {run.id}"
    head = [heading(title, " · ".join(run.labels().values()), level=1), bullets(lines)]
    return shell(title, [*head, *parts, *regenerate(command, run.document())])


# --- quality


def findings(scales: Sequence[ScaleQuality]) -> list[str]:
    """Each output against the baselines."""
    lines = []
    for quality in scales:
        methods = quality.methods
        for output, mine in methods.items():
            if mine.above:
                gaps = ", ".join(
                    f"{name} {mine.psnr - methods[name].psnr:+.2f} dB (above on {100 * share:.0f} %)"
                    for name, share in mine.above.items()
                )
                lines.append(f"×{quality.scale}: the {output} reaches {mine.psnr:.2f} dB; against {gaps}.")
    return lines


def quality_table(scales: Sequence[ScaleQuality]) -> Markup:
    def cell(quality: MethodQuality) -> str:
        return f"{quality.psnr:.2f}" + ("" if quality.ssim is None else f" · {quality.ssim:.3f}")

    names = methods_in(scales)
    cells = [{name: cell(quality) for name, quality in q.methods.items()} for q in scales]
    rows = [[f"×{q.scale}", *(row.get(name, "–") for name in names)] for q, row in zip(scales, cells, strict=True)]
    return html_table(["PSNR (dB) · SSIM", *names], rows, label="Quality by scale", row_headers=True)


def quality_over_scales(scales: Sequence[ScaleQuality]) -> go.Figure:
    figure = figure_of("scale", "PSNR (dB)")
    for place, name in enumerate(METHODS):
        values = {f"×{q.scale}": q.methods[name].psnr for q in scales if name in q.methods}
        if values:
            line = {"color": COLOURS[place], "dash": DASHES[0 if name in OUTPUTS else 1]}
            figure.add_scatter(x=list(values), y=list(values.values()), name=name, mode="lines+markers", line=line)
    return figure


def quality_by_variant(table: Table[FieldsRun]) -> go.Figure:
    """At the input's own resolution: every seed a dot, means with 95 % intervals."""
    figure = figure_of("PSNR (dB) of the field at ×1, held-out signals", "")
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
        name="mean, 95 %",
        mode="markers",
        marker={"color": COLOURS[0], "size": 11, "symbol": "diamond"},
        error_x={"type": "data", "array": reach, "color": COLOURS[0]},
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(ticksuffix=" dB")
    figure.update_layout(height=160 + 44 * len(cells))
    return figure


def learning_curve(run: FieldsRun, store: Store) -> go.Figure:
    evaluations = evaluations_of(read_results([run], store)[0])
    curves = {
        split: [{one.step: getattr(one.metrics, split).scales[0].field.psnr for one in evaluations}]
        for split in ("validation", "test")
    }
    return learning_curves(curves, "PSNR (dB) of the field, ×1", markers=True)


# --- signals


def image_table(columns: Mapping[str, Tensor]) -> Markup:
    """By column, (rows, 3, height, width)."""
    if not columns:
        return Markup("<p class=note>The signals are no images.</p>")
    width = WIDE if len(columns) <= FEW else NARROW
    image = Markup('<img width={0} height={0} alt="{1}" src="{2}">')
    rows = [
        [image.format(width, name, data_uri(one)) for name, one in zip(columns, row, strict=True)]
        for row in zip(*columns.values(), strict=True)
    ]
    return html_table(list(columns), rows, label="Images side by side")


def signal_curves(columns: Mapping[str, Tensor], x: Tensor) -> go.Figure:
    """The first signal of one axis, its first channel."""
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
        f" · {cost.result.encode:.1f} ms to encode a signal, {cost.result.decode:.1f} ms to decode it at its own size"
        f" (one thread), {cost.result.memory:.1f} MiB to encode it"
    )


def faster_from(costs: Mapping[str, EncoderCost]) -> str:
    """From how many tokens on the first encoder is faster than the second."""
    if len(costs) < 2:
        return ""
    (first, its), (second, other) = costs.items()
    times = its.curve("ms")
    tokens, counts = crossing(times, other.curve("ms")), sorted(times)
    if tokens is None:
        return f"{second} is faster up to {counts[-1]:,} tokens."
    if tokens <= counts[0]:
        return f"{first} is faster from {counts[0]:,} tokens to {counts[-1]:,}."
    return f"{first} is faster than {second} from about {tokens:,.0f} tokens on."


def _over_tokens(costs: Mapping[str, EncoderCost], what: Literal["ms", "mib"], label: str) -> go.Figure:
    figure = figure_of("tokens, position tokens among them", label)
    for place, (name, cost) in enumerate(costs.items()):
        curve, line = cost.curve(what), {"color": COLOURS[place], "dash": DASHES[place]}
        figure.add_scatter(x=list(curve), y=list(curve.values()), name=name, mode="lines+markers", line=line)
        figure.update_xaxes(type="log", tickvals=list(curve))
    figure.update_yaxes(type="log")
    return figure


# --- analyses


def analysis_findings(analysis: FieldAnalysis) -> list[str]:
    own, swapped, diversity, pruned = analysis.own, analysis.swapped, analysis.diversity, analysis.pruning.psnr
    lines = [
        f"With another signal's position tokens the field falls from {own:.1f} to {swapped:.1f} dB: "
        + ("what it shows comes through them." if own - swapped > 3 else "it hardly uses them.")
    ]
    if analysis.render is not None and analysis.render_swapped is not None:
        lost = analysis.render - analysis.render_swapped
        lines.append(
            f"The render loses {lost:.2f} dB that way: " + ("it owes little to them." if lost < 1 else "it uses them.")
        )
    left_out = ", ".join(f"{100 * share:g} % gone {value:.1f} dB" for share, value in pruned.items() if share)
    return [
        *lines,
        f"Without the least useful position tokens: {left_out} (all: {pruned[0]:.1f} dB).",
        f"Diversity of position tokens, 1 − mean cosine: {diversity.raw:.2f}, centred {diversity.centred:.2f}.",
    ]


def robustness(analysis: FieldAnalysis) -> go.Figure:
    figure = figure_of("in spacings of position tokens", "PSNR (dB)")
    curves = {"noise on the locations of tokens": analysis.jitter, "offset of the queries": analysis.query_offset}
    for place, (name, values) in enumerate(curves.items()):
        line = {"color": COLOURS[place]}
        figure.add_scatter(x=list(values), y=list(values.values()), name=name, mode="lines+markers", line=line)
    figure.add_hline(
        y=analysis.swapped, line={"dash": "dot", "color": "#888"}, annotation_text="another signal's tokens"
    )
    return figure


def _contributions(contribution: Sequence[float]) -> go.Figure:
    figure = figure_of("position token, by contribution", "dB lost without it")
    values = sorted(contribution, reverse=True)
    figure.add_bar(x=list(range(len(values))), y=values, marker={"color": COLOURS[0]})
    return figure
