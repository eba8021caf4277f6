"""The page of an audit."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from whence.formatting import number
from whence.leak.audit.auditing import Audit
from whence.leak.instrument import at
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.html import badges, bullets, html_table
from whence.report.shell import plot, regenerate, shell


def audit_page(audit: Audit, again: str) -> bytes:
    """Verdict first, then what it rests on."""
    title = f"whence leak: {audit.name}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class=note>{audit.rows} examples of {audit.tokens} tokens</p>",
        f"<p>{badges(audit.verdict.notes)}</p>",
        bullets([*audit.verdict.sentences, *audit.facts]),
    ]
    figures = {"Layer by layer": layer_profile(audit), "Predictions by position": predictions_by_position(audit)}
    figures["Similarity of mean predictions between positions"] = similarity_map(audit)
    drawn = [(name, figure) for name, figure in figures.items() if figure is not None]
    for place, (name, figure) in enumerate(drawn):
        parts.append(f"<h2>{name}</h2>{plot(figure, f'leak{place}', place == 0)}")
        if place == 0 and audit.sources:
            parts += ["<h2>Pathways</h2>", sources_table(audit)]
    parts += ["<h2>Measures</h2>", measures_table(audit)]
    return shell(title, [*parts, *regenerate(again, {k: v for k, v in audit.to_json().items() if k != "pictures"})])


MEASURES: list[tuple[str, tuple[str, ...]]] = [
    ("normalized error (1 = predicting the mean)", ("error",)),
    ("position correlation, mean |r|", ("correlation",)),
    ("… by chance", ("correlation_chance",)),
    ("… of the targets", ("correlation_target",)),
    ("η², share of variance by position", ("eta2",)),
    ("… of the targets", ("eta2_target",)),
    ("pairwise similarity", ("similarity",)),
    ("… centered", ("similarity_centred",)),
    ("variance between positions, over the target variance", ("spread",)),
    ("… detection limit", ("spread_limit",)),
    ("probe: R² of position", ("probe", "r2")),
    ("… mean error in positions", ("probe", "mae")),
    ("… best shape, R²", ("probe", "best")),
    ("… relabelled positions, R²", ("probe", "control")),
    ("… p by shuffling", ("probe", "p")),
    ("mask pattern alone, R²", ("pattern_r2",)),
    ("shift sensitivity, share of the prediction variance", ("shift", "of_prediction")),
    ("… detection limit", ("shift", "limit")),
    ("content permuted: change over prediction variance", ("content", "changed")),
    ("… factor of the error", ("content", "error")),
    ("content replaced: change over prediction variance", ("content", "replaced")),
    ("gradient share of position", ("gradient",)),
]


def measures_table(audit: Audit) -> str:
    columns = ["mask ratio"]
    sources: list[Mapping[str, Any]] = []
    for ratio, found in audit.ratios.items():
        columns.append(f"{float(ratio):g}")
        sources.append(found)
        if ratio in audit.untrained:
            columns.append("untrained")
            sources.append(audit.untrained[ratio])
    rows = [[name, *(number(at(found, path)) for found in sources)] for name, path in MEASURES]
    thresholds = "; ".join(f"{name} {value:g}" for name, value in audit.verdict.thresholds.items())
    note = f"Thresholds of the verdict: {thresholds}. The measures are defined in docs/leak.md."
    return f"{html_table(columns, rows, label='measures')}<p class=note>{html.escape(note)}</p>"


def sources_table(audit: Audit) -> str:
    rows = [
        [s["name"], s["where"], s["note"], *(number(s[key]) for key in ("with_all", "without", "alone"))]
        for s in audit.sources
    ]
    note = "<p class=note>Shift sensitivity, mean over mask ratios below 1, at the same placements in every column.</p>"
    columns = ["pathway", "where", "", "with all", "without it", "it alone"]
    return note + html_table(columns, rows, label="pathways")


def layer_profile(audit: Audit) -> go.Figure | None:
    """Shift sensitivity and probe R² after every layer."""
    if not audit.profile:
        return None
    ratio = next(iter(audit.profile.values())).get("ratio", 0)
    figure = figure_of("layer", f"at masked tokens, mask ratio {ratio:g}")
    layers = list(audit.profile)
    lines = (("trained", "model"), ("untrained", "untrained"))
    for place, (measure, label) in enumerate((("moved", "shift sensitivity"), ("best", "probe (R²)"))):
        for dash, (who, name) in enumerate(lines):
            values = [(audit.profile[layer].get(who) or {}).get(measure) for layer in layers]
            if any(value is not None for value in values):
                figure.add_scatter(
                    x=layers,
                    y=values,
                    name=f"{label}, {name}",
                    mode="lines+markers",
                    line={"color": COLOURS[place], "dash": DASHES[dash]},
                    hovertemplate="%{x}: %{y:.2f}",
                )
    pattern = [audit.profile[layer].get("pattern_r2") for layer in layers]
    if any(value is not None for value in pattern):
        figure.add_scatter(
            x=layers, y=pattern, name="probe, mask pattern alone", mode="lines", line={"color": "#888", "dash": "dot"}
        )
    figure.update_yaxes(range=[-0.05, 1.05])
    return figure


def predictions_by_position(audit: Audit) -> go.Figure:
    ratio = list(audit.ratios)[-1]
    figure = figure_of("position", f"mean prediction, mask ratio {float(ratio):g}")
    pictures = audit.pictures
    for place, (dimension, values) in enumerate(zip(pictures["dimensions"], pictures["prediction"], strict=True)):
        line = {"color": COLOURS[place % len(COLOURS)]}
        figure.add_scatter(
            x=pictures["position"], y=values, name=f"output {dimension}", mode="lines+markers", line=line
        )
        figure.add_scatter(
            x=pictures["position"],
            y=pictures["target"][place],
            name=f"target {dimension}",
            mode="lines",
            line={**line, "dash": "dot"},
            visible="legendonly",
        )
    return figure


def similarity_map(audit: Audit) -> go.Figure | None:
    pictures = audit.pictures
    if pictures["similarity"] is None:  # all are equal
        return None
    figure = figure_of("position", "position")
    figure.add_heatmap(
        x=pictures["position"],
        y=pictures["position"],
        z=pictures["similarity"],
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
