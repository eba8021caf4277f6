"""The page of one sparse autoencoder."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go

from whence.features.evals.measures import BOUND
from whence.features.map_page import MAP_SCRIPT, feature_section, map_section
from whence.features.run import FeaturesRun
from whence.features.view import View
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.html import bullets
from whence.report.shell import plot, regenerate, shell
from whence.store.records import EvaluationRecord, LossRecord, MetricsRecord


def run_page(run: FeaturesRun, found: View, records: Sequence[MetricsRecord], again: str) -> bytes:
    """records: everything that the run has noted, losses and evaluations."""
    title = f"whence features: {run.id}"
    labels = html.escape(" · ".join(run.labels().values()))
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p class=note>{labels}</p>", bullets(seen(found))]
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


def learning(records: Sequence[MetricsRecord]) -> go.Figure:
    """As it was trained."""
    figure = figure_of("step", "fraction of variance")
    losses = [record for record in records if isinstance(record, LossRecord)]
    checks = [record for record in records if isinstance(record, EvaluationRecord)]
    figure.add_scatter(
        x=[r.step for r in losses],
        y=[r.loss for r in losses],
        name="training loss",
        mode="lines",
        line={"color": COLOURS[1], "dash": DASHES[0], "width": 1},
    )
    figure.add_scatter(
        x=[r.step for r in checks],
        y=[r.metrics["curve"] for r in checks],
        name="FVU on states never trained on",
        mode="lines+markers",
        line={"color": COLOURS[0]},
    )
    return figure
