"""Pages of the features instrument: one autoencoder looked at, and presets side by side."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from whence.features.curves import Curves
from whence.features.measures import BOUND
from whence.features.run import Run
from whence.features.table import Row, Table, cell
from whence.features.view import View
from whence.report.feature_map import MAP_SCRIPT, feature_section, map_section
from whence.report.feature_scores import (
    bars,
    by_strictness,
    final_losses,
    over_steps,
    recovered,
    strict_bars,
    strictness,
)
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.shell import plot, regenerate, shell

LEGEND = (
    "FVU: fraction of variance unexplained. L0: active features per state. dead: never active. lifted: with masks "
    "taken away. bound: position-bound features, masks lifted. fidelity: share of a feature's variance that position "
    "explains, median. retention: correlation of where a feature may speak and where it does, masks lifted; chance: "
    "with masks of others. free, bound found: cosine with the true directions. In brackets: 95 % over seeds."
)


def run_page(run: Run, found: View, records: Sequence[Mapping[str, Any]], again: str) -> bytes:
    """records: everything that the run has noted, losses and evaluations."""
    title = f"whence features: {run.id}"
    labels = html.escape(" · ".join(run.labels().values()))
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p class=note>{labels}</p>", _listed(seen(found))]
    parts += ["<h2>Where each feature speaks</h2>", map_section(found)]
    parts += ["<h2>One feature</h2>", feature_section(found)]
    parts += ["<h2>How much of a feature position explains</h2>", plot(degrees(found), "fidelity", True)]
    parts += ["<h2>As it was trained</h2>", plot(learning(records), "learning", False)]
    parts += [f"<p class=note>Run <code>{run.id}</code>, on states of documents never trained on.</p>"]
    return shell(title, [*parts, *regenerate(again, run.document()), f"<script>{MAP_SCRIPT}</script>"])


def seen(found: View) -> list[str]:
    """In words."""
    size, masked = found.lifted.shape[1], found.assigned is not None
    lifted = ", masks lifted" * masked
    bound = found.bound
    lines = [
        f"{len(bound)} of {len(found.fidelity)} features are position-bound{lifted}: position explains at least "
        f"{100 * BOUND:g} % of their variance. The other {size - len(found.fidelity)} are too rarely active to say."
    ]
    if bound:
        peaks = found.peaks.tolist()
        told = ", ".join(f"{f} at {peaks[f]} ({found.fidelity[f]:.2f})" for f in bound[:8])
        lines.append(f"Most bound, with the position of their peak: {told}{', …' if len(bound) > 8 else ''}.")
    lines.append(
        f"FVU {found.fvu[0]:.4f}" + (f"; with masks lifted {found.fvu[1]:.4f}." if masked else "; there are no masks.")
    )
    return lines


def _listed(lines: Sequence[str]) -> str:
    return "<ul class=findings>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"


def degrees(found: View) -> go.Figure:
    """How many features are how far about position."""
    figure = figure_of("fidelity: share of variance that position explains", "features")
    figure.add_histogram(
        x=list(found.fidelity.values()), xbins={"start": -0.05, "end": 1.0, "size": 0.025}, marker={"color": COLOURS[0]}
    )
    figure.add_vline(
        BOUND,
        line_dash="dot",
        line_color="#888",
        annotation_text="position-bound from here on",
        annotation_position="top left",
    )
    figure.update_yaxes(type="log", title="features (logarithmic)")
    return figure.update_xaxes(range=[-0.06, 1.02])


def learning(records: Sequence[Mapping[str, Any]]) -> go.Figure:
    """As it was trained."""
    figure = figure_of("step", "fraction of variance")
    losses = [record for record in records if "loss" in record]
    checks = [record for record in records if "metrics" in record]
    figure.add_scatter(
        x=[r["step"] for r in losses],
        y=[r["loss"] for r in losses],
        name="training loss",
        mode="lines",
        line={"color": COLOURS[1], "dash": DASHES[0], "width": 1},
    )
    figure.add_scatter(
        x=[r["step"] for r in checks],
        y=[r["metrics"]["curve"] for r in checks],
        name="FVU on states never trained on",
        mode="lines+markers",
        line={"color": COLOURS[0]},
    )
    return figure


def comparison_page(table: Table, curves: Mapping[str, Curves], document: Any, again: str) -> bytes:
    """Scores, curves over steps, final numbers, and masks by how strict they are."""
    title = f"whence features: {table.title}"
    parts = [f"<h1>{html.escape(title)}</h1>"]
    if table.exploratory:
        parts.append("<p><span class=badge>exploratory: too few seeds to decide</span></p>")
    parts.append(_listed(table.findings))
    for place, (name, figure) in enumerate(scores(table, curves).items()):
        parts += [f"<h2>{name}</h2>", plot(figure, f"features{place}", place == 0)]
    parts += ["<h2>Final metrics: all of them</h2>", metrics(table), f"<p class=note>{html.escape(LEGEND)}</p>"]
    there = by_strictness(table.rows)
    if there:
        parts += ["<h2>Hard against soft masks</h2>", strictness(there), plot(strict_bars(there), "strict", False)]
    failed = failures(table.rows)
    parts += ["<h2>Failed, in no average</h2>", _listed(failed)] if failed else []
    return shell(title, [*parts, _runs(table.rows), *regenerate(again, document)])


def scores(table: Table, curves: Mapping[str, Curves]) -> dict[str, go.Figure]:
    """The figures of a comparison, by what they show; none where nothing has finished."""
    shown = [row for row in table.rows if row.metrics]
    if not shown:
        return {}
    drawn = {
        "Scores: variance unexplained, every seed a dot": bars(shown, "FVU", "FVU"),
        "Scores: true directions recovered": recovered(shown),
        "Loss curves: training loss": over_steps({row.name: curves[row.name].losses for row in shown}, "loss"),
        "Loss curves: FVU on states never trained on": over_steps(
            {row.name: curves[row.name].fvu for row in shown}, "FVU"
        ),
        "Final metrics: training loss of the last tenth": final_losses(curves),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def metrics(table: Table) -> str:
    """All numbers, with their intervals."""
    head = "".join(
        f"<th>{html.escape(name)}" for name in ("preset", *table.columns, "seeds alike", "parameters", "seeds")
    )
    body = ""
    for row in table.rows:
        alike = "–" if row.alike is None else f"{row.alike:.2f}"
        cells = "".join(f"<td class=n>{_with_interval(row, column)}" for column in table.columns)
        rest = f"<td class=n>{alike}<td class=n>{row.parameters:,}<td class=n>{len(row.metrics)}"
        body += f"<tr><td>{html.escape(row.name)}{cells}{rest}</tr>"
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _with_interval(row: Row, column: str) -> str:
    between = row.interval(column)
    told = f"<br><span class=note>[{', '.join(cell(end, column) for end in between)}]</span>" if between else ""
    return cell(row.mean(column), column) + told


def failures(rows: Sequence[Row]) -> list[str]:
    return [f"{row.name}, {run}: {reason}" for row in rows for run, reason in row.failed.items()]


def _runs(rows: Sequence[Row]) -> str:
    listed = "<br>".join(f"{html.escape(row.name)}: <code>{' '.join(row.runs)}</code>" for row in rows)
    return f"<details><summary>The runs of this page, in every figure</summary><p>{listed}</p></details>"
