"""The page of an audit, rendered from its stored result."""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go

from whence.formatting import number
from whence.leak.audit.artifact import AuditArtifact, audit_command
from whence.leak.metrics import Audit, LayerMeasures, RatioMetrics
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.html import badges, bullets, heading, html_table, render
from whence.report.shell import plot, regenerate, shell

SHIFT_TEST = (
    "Shift test: a block of visible and masked tokens is embedded at two offsets in an otherwise fully masked "
    "sequence, and the predictions inside the block are compared. Shift sensitivity is the share of the prediction "
    "variance that this translation causes. It is 0 for a model that uses relative context only."
)
POSITION_VARIANCE = (
    "Position variance: at mask ratio 1 the inputs of all examples are equal, so that a variance of predictions "
    "between positions is due to position alone."
)
METHOD = (
    SHIFT_TEST,
    POSITION_VARIANCE,
    "Pathways: each part through which position can enter is ablated, and also left as the only one.",
    "Control: the untrained twin has the same architecture and new weights. What differs from it is due to training.",
)
LEAD = "<p class=lead><strong>{{ verdict }}</strong> {{ badges }}</p>"
NOTE = "<p class=note>{{ note }}</p>"
LIMITS = "Limits: the verdict is about these examples and this mask pattern."


def audit_page(artifact: AuditArtifact) -> bytes:
    """A self-contained page: the verdict, the figure, the main table, and how they were obtained."""
    audit = artifact.result
    title = f"Position leakage: {audit.name}"
    document = audit.model_dump(mode="json", exclude={"means"})
    verdict, *evidence = audit.verdict.sentences
    figures = [heading(name) + plot(figure) for name, draw in FIGURES.items() if (figure := draw(audit)) is not None]
    return shell(
        title,
        [
            heading(title, f"whence leak audit · {audit.rows} examples of {audit.tokens} tokens", level=1),
            render(LEAD, verdict=verdict, badges=badges(audit.verdict.notes)),
            figures[0],
            heading("Shift sensitivity by mask ratio"),
            summary_table(audit),
            *([heading("Pathways"), pathways_table(audit)] if audit.pathways else []),
            heading("How we know"),
            bullets(evidence),
            heading("Method and controls", level=3),
            bullets(METHOD),
            heading("Inputs and limits", level=3),
            bullets([*audit.facts, LIMITS]),
            *figures[1:],
            heading("All measures"),
            measures_table(audit),
            *regenerate(audit_command(artifact.request), document),
        ],
    )


def summary_table(audit: Audit) -> str:
    """Shift sensitivity and reconstruction at every mask ratio, of the model and of its untrained twin."""
    measures: dict[str, Callable[[RatioMetrics], float | None]] = {
        "shift sensitivity": lambda m: m.shift.sensitivity,
        "normalized MSE": lambda m: m.error,
    }
    heads, rows = ["mask ratio"], [[f"{ratio:g}"] for ratio in audit.ratios]
    for name, measure in measures.items():
        for label, table in {name: audit.ratios, f"{name}, untrained": audit.untrained}.items():
            if table:
                heads.append(label)
                for row, ratio in zip(rows, audit.ratios, strict=True):
                    row.append(number(measure(table[ratio])) if ratio in table else "–")
    note = (
        "Shift sensitivity: share of the prediction variance caused by translating content and mask together. "
        "Normalized MSE: 1 = predicting the mean."
    )
    return html_table(heads, rows, label="shift sensitivity by mask ratio", row_headers=True) + render(NOTE, note=note)


MEASURES: list[tuple[str, Callable[[RatioMetrics], float | None]]] = [
    ("shift sensitivity", lambda m: m.shift.sensitivity),
    ("… detection limit", lambda m: m.shift.limit),
    ("position variance, relative to the target variance", lambda m: m.position_variance),
    ("… detection limit", lambda m: m.position_variance_limit),
    ("normalized MSE (1 = predicting the mean)", lambda m: m.error),
    ("correlation with position, mean |r|", lambda m: m.correlation),
    ("… by chance", lambda m: m.correlation_chance),
    ("… of the targets", lambda m: m.correlation_target),
    ("share of variance that position explains, η²", lambda m: m.eta2),
    ("… of the targets", lambda m: m.eta2_target),
    ("probe for position, R²", lambda m: m.probe and m.probe.r2),
    ("… mean absolute error, positions", lambda m: m.probe and m.probe.mae),
    ("… best function of position, R²", lambda m: m.probe and m.probe.best),
    ("… relabelled positions (control), R²", lambda m: m.probe and m.probe.control),
    ("… permutation test, p", lambda m: m.probe and m.probe.p),
    ("probe of the mask pattern alone, R²", lambda m: m.pattern_r2),
    ("cosine between predictions of a row", lambda m: m.similarity),
    ("… centered", lambda m: m.similarity_centered),
    ("visible content permuted: change / prediction variance", lambda m: m.content and m.content.permuted),
    ("… factor of the error", lambda m: m.content and m.content.error_factor),
    ("visible content replaced: change / prediction variance", lambda m: m.content and m.content.replaced),
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
    note = f"Thresholds of the verdict: {thresholds}. Definitions of the measures: docs/leak.md."
    return html_table(heads, rows, label="measures") + render(NOTE, note=note)


def pathway_rows(audit: Audit) -> list[list[str]]:
    return [
        [p.name, p.where, p.note, *(number(value, "–") for value in (p.with_all, p.without, p.alone))]
        for p in audit.pathways
    ]


PATHWAY_COLUMNS = ["pathway", "modules", "details", "with all", "without it", "alone"]


def pathways_table(audit: Audit) -> str:
    note = (
        "Shift sensitivity with all pathways, with one ablated, and with one alone; mean over mask ratios below 1. "
        "Every column uses the same placements."
    )
    table = html_table(PATHWAY_COLUMNS, pathway_rows(audit), label="pathways", prose=True, stack=True)
    return table + render(NOTE, note=note)


def layer_profile(audit: Audit) -> go.Figure | None:
    """Shift sensitivity and probe R² of the activations after every layer; None where layers are unknown."""
    profile = audit.profile
    if profile is None:
        return None
    figure = figure_of("layer", f"share (activations at masked tokens, mask ratio {profile.ratio:g})")
    names = list(profile.layers)
    models = {
        "model": [layer.trained for layer in profile.layers.values()],
        "untrained twin": [layer.untrained for layer in profile.layers.values()],
    }
    measures: dict[str, Callable[[LayerMeasures], float | None]] = {
        "shift sensitivity": lambda layer: layer.shift,
        "probe for position (R²)": lambda layer: layer.probe and layer.probe.best,
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
        figure.add_scatter(x=names, y=pattern, name="probe of the mask pattern alone (R²)", mode="lines", line=line)
    figure.update_yaxes(range=[-0.05, 1.05])
    return figure


def predictions_by_position(audit: Audit) -> go.Figure:
    """Mean prediction and target at every position, for the outputs that vary most between positions."""
    figure = figure_of("position", f"mean prediction (mask ratio {max(audit.ratios):g})")
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
    """Cosine similarity of mean predictions between positions; None where all predictions are equal."""
    means = audit.means
    if means.similarity is None:
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


FIGURES: dict[str, Callable[[Audit], go.Figure | None]] = {
    "Position in the activations, layer by layer": layer_profile,
    "Predictions by position": predictions_by_position,
    "Similarity of mean predictions between positions": similarity_map,
}


def audit_parts(audit: Audit) -> list[str]:
    """An audit without figures, for notebooks."""
    verdict, *evidence = audit.verdict.sentences
    return [
        heading(audit.name, f"{audit.rows} examples of {audit.tokens} tokens", level=3),
        render(LEAD, verdict=verdict, badges=badges(audit.verdict.notes)),
        summary_table(audit),
        *([pathways_table(audit)] if audit.pathways else []),
        bullets([*evidence, *audit.facts]),
    ]
