"""The page of an audit, made from what is stored."""

from __future__ import annotations

import html
from collections.abc import Callable

import plotly.graph_objects as go
from markupsafe import Markup

from whence.formatting import number
from whence.leak.audit.artifact import AuditArtifact, audit_command
from whence.leak.metrics import Audit, LayerMeasures, RatioMetrics
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.html import badges, bullets, heading, html_table, render
from whence.report.shell import plot, regenerate, shell


def audit_page(artifact: AuditArtifact) -> bytes:
    """Verdict first, then what it rests on."""
    audit = artifact.result
    title = f"whence leak: {audit.name}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class=note>{audit.rows} examples of {audit.tokens} tokens</p>",
        f"<p>{badges(audit.verdict.notes)}</p>",
        bullets([*audit.verdict.sentences, *audit.facts]),
    ]
    figures = {
        "Layer by layer": layer_profile(audit),
        "Predictions by position": predictions_by_position(audit),
        "Similarity of mean predictions between positions": similarity_map(audit),
    }
    drawn = [(name, figure) for name, figure in figures.items() if figure is not None]
    for place, (name, figure) in enumerate(drawn):
        parts.append(f"<h2>{name}</h2>{plot(figure)}")
        if place == 0 and audit.pathways:
            parts += ["<h2>Pathways</h2>", pathways_table(audit)]
    parts += ["<h2>Measures</h2>", measures_table(audit)]
    document = audit.model_dump(mode="json", exclude={"means"})
    return shell(title, [*parts, *regenerate(audit_command(artifact.request), document)])


MEASURES: list[tuple[str, Callable[[RatioMetrics], float | None]]] = [
    ("normalized error (1 = predicting the mean)", lambda m: m.error),
    ("position correlation, mean |r|", lambda m: m.correlation),
    ("… by chance", lambda m: m.correlation_chance),
    ("… of the targets", lambda m: m.correlation_target),
    ("η², share of variance by position", lambda m: m.eta2),
    ("… of the targets", lambda m: m.eta2_target),
    ("pairwise similarity", lambda m: m.similarity),
    ("… centered", lambda m: m.similarity_centered),
    ("variance between positions, over the target variance", lambda m: m.position_variance),
    ("… detection limit", lambda m: m.position_variance_limit),
    ("probe: R² of position", lambda m: m.probe and m.probe.r2),
    ("… mean error in positions", lambda m: m.probe and m.probe.mae),
    ("… best shape, R²", lambda m: m.probe and m.probe.best),
    ("… relabelled positions, R²", lambda m: m.probe and m.probe.control),
    ("… p by shuffling", lambda m: m.probe and m.probe.p),
    ("mask pattern alone, R²", lambda m: m.pattern_r2),
    ("shift sensitivity, share of the prediction variance", lambda m: m.shift.sensitivity),
    ("… detection limit", lambda m: m.shift.limit),
    ("content permuted: change over prediction variance", lambda m: m.content and m.content.permuted),
    ("… factor of the error", lambda m: m.content and m.content.error_factor),
    ("content replaced: change over prediction variance", lambda m: m.content and m.content.replaced),
    ("gradient share of position", lambda m: m.gradient),
]


def measures_table(audit: Audit) -> str:
    columns: dict[str, RatioMetrics] = {}
    heads = ["mask ratio"]
    for ratio, metrics in audit.ratios.items():
        columns[f"{ratio:g}"] = metrics
        heads.append(f"{ratio:g}")
        if ratio in audit.untrained:
            columns[f"{ratio:g} untrained"] = audit.untrained[ratio]
            heads.append("untrained")
    rows = [[name, *(number(measure(metrics)) for metrics in columns.values())] for name, measure in MEASURES]
    thresholds = "; ".join(f"{name} {value:g}" for name, value in audit.verdict.thresholds.items())
    note = f"Thresholds of the verdict: {thresholds}. The measures are defined in docs/leak.md."
    return f"{html_table(heads, rows, label='measures')}<p class=note>{html.escape(note)}</p>"


def pathway_rows(audit: Audit) -> list[list[str]]:
    return [[p.name, p.where, p.note, *map(number, (p.with_all, p.without, p.alone))] for p in audit.pathways]


PATHWAY_COLUMNS = ["pathway", "where", "", "with all", "without it", "it alone"]


def pathways_table(audit: Audit) -> str:
    note = "<p class=note>Shift sensitivity, mean over mask ratios below 1, at the same placements in every column.</p>"
    return note + html_table(PATHWAY_COLUMNS, pathway_rows(audit), label="pathways")


def layer_profile(audit: Audit) -> go.Figure | None:
    """Shift sensitivity and probe R² after every layer."""
    profile = audit.profile
    if profile is None:
        return None
    figure = figure_of("layer", f"at masked tokens, mask ratio {profile.ratio:g}")
    names = list(profile.layers)
    models = {
        "model": [layer.trained for layer in profile.layers.values()],
        "untrained": [layer.untrained for layer in profile.layers.values()],
    }
    measures: dict[str, Callable[[LayerMeasures], float | None]] = {
        "shift sensitivity": lambda layer: layer.shift,
        "probe (R²)": lambda layer: layer.probe and layer.probe.best,
    }
    for colour, (label, measure) in zip(COLOURS, measures.items(), strict=False):
        for dash, (model, layers) in zip(DASHES, models.items(), strict=False):
            values = [measure(layer) if layer else None for layer in layers]
            if any(value is not None for value in values):
                figure.add_scatter(
                    x=names,
                    y=values,
                    name=f"{label}, {model}",
                    mode="lines+markers",
                    line={"color": colour, "dash": dash},
                    hovertemplate="%{x}: %{y:.2f}",
                )
    if profile.pattern_r2 is not None:
        line = {"color": "#888", "dash": "dot"}
        pattern = [profile.pattern_r2] * len(names)
        figure.add_scatter(x=names, y=pattern, name="probe, mask pattern alone", mode="lines", line=line)
    figure.update_yaxes(range=[-0.05, 1.05])
    return figure


def predictions_by_position(audit: Audit) -> go.Figure:
    figure = figure_of("position", f"mean prediction, mask ratio {max(audit.ratios):g}")
    means = audit.means
    for place, (dimension, values) in enumerate(zip(means.dimensions, means.prediction, strict=True)):
        line = {"color": COLOURS[place % len(COLOURS)]}
        figure.add_scatter(x=means.positions, y=values, name=f"output {dimension}", mode="lines+markers", line=line)
        figure.add_scatter(
            x=means.positions,
            y=means.target[place],
            name=f"target {dimension}",
            mode="lines",
            line={**line, "dash": "dot"},
            visible="legendonly",
        )
    return figure


def similarity_map(audit: Audit) -> go.Figure | None:
    means = audit.means
    if means.similarity is None:  # all are equal
        return None
    figure = figure_of("position", "position")
    figure.add_heatmap(
        x=means.positions,
        y=means.positions,
        z=means.similarity,
        zmin=-1,
        zmax=1,
        colorscale="RdBu",
        colorbar={"title": {"text": "cosine", "side": "top"}, "orientation": "h", "thickness": 12, "len": 0.6},
        hovertemplate="%{x}, %{y}: %{z:.2f}<extra></extra>",
    )
    figure.update_layout(
        xaxis={"constrain": "domain", "title": {"standoff": 24}},
        yaxis={"scaleanchor": "x", "constrain": "domain"},
        height=520,
        hovermode="closest",
    )
    return figure


def audit_parts(audit: Audit) -> list[str]:
    """An audit without figures, for notebooks."""
    measures = render("<details><summary>Measures</summary>{{ table }}</details>", table=Markup(measures_table(audit)))
    parts: list[str] = [heading(audit.name, f"{audit.rows} examples of {audit.tokens} tokens", level=3)]
    parts += [badges(audit.verdict.notes), bullets([*audit.verdict.sentences, *audit.facts])]
    return [*parts, *([Markup(pathways_table(audit))] if audit.pathways else []), measures]
