"""The page of one sparse autoencoder, and its figures, which the app draws as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from whence.features.evals.measures import FEW, POSITION_SPECIFIC
from whence.features.evals.profiles import ActivatingContext, FeatureProfiles, Order, most_position_specific
from whence.features.run import FeaturesRun
from whence.report.figures import COLOURS, figure_of, learning_curves
from whence.report.html import bullets, heading, html_table, render
from whence.report.shell import plot, regenerate, shell
from whence.store.records import EvaluationRecord, LossRecord, MetricsRecord

TALL = 640
"""Largest number of rows of a heat map; with more features, each row is the mean of several."""
NAMED = 45
"""Largest number of rows that are labelled."""
STYLE = """
.contexts td:first-child, .contexts td:nth-child(2) { white-space: nowrap }
mark { background: #ffe08a; color: inherit; padding: 0 .15em }
"""
SECTIONS = """\
{% if note %}<p class=note>{{ note }}</p>{% endif %}
{% for summary, table in described %}
<details class=contexts{% if loop.first %} open{% endif %}><summary>{{ summary }}</summary>{{ table }}</details>
{% endfor %}"""
CONTEXTS = """\
{% if contexts %}<div class=scroll tabindex=0 role=region aria-label="contexts">
<table><tr><th>activation<th>position<th>held-out text</tr>
{% for c in contexts %}
<tr><td class=n>{{ "%.3g" % c.value }}<td class=n>{{ c.position }}
<td>{{ c.before }} <mark>{{ c.token }}</mark> {{ c.after }}</tr>
{% endfor %}</table></div>{% endif %}"""
LEAD = "<p class=lead><strong>{{ sentence }}</strong></p>"
MAP_NOTE = (
    "Each row is a feature, scaled to its own maximum; features that are never active are at the bottom. Sorted by the "
    "position of their peak, features without position information also form a diagonal, since every row has a maximum "
    "somewhere. Position selectivity measures how much of a feature's variance position explains."
)
METHOD = (
    "Position selectivity (ε²): the share of a feature's variance that position explains, corrected for chance. A "
    f"feature is position-specific from {100 * POSITION_SPECIFIC:g} %.",
    "Everything is measured on held-out activations. Under a mask, a feature is active at the positions that the mask "
    "admits, whatever it has learned. Mean activations and selectivity are therefore measured with the mask off.",
    f"Limits: the selectivity of features that are active fewer than {FEW} times is not measured. A run is one seed; "
    "'whence features compare' repeats runs over seeds and tests differences.",
)


def run_page(run: FeaturesRun, profiles: FeatureProfiles, records: Sequence[MetricsRecord], command: str) -> bytes:
    """A self-contained page of one autoencoder: the verdict, the heat map, the table, and how they were obtained.

    records: losses and evaluations of the run, by step.
    """
    title = f"whence features: {' · '.join(run.labels().values())}"
    verdict, *findings = profile_findings(profiles)
    (first, _), *others = tables(profiles).items()
    parts = [f"<style>{STYLE}</style>", heading(title, f"run {run.id}", level=1), render(LEAD, sentence=verdict)]
    parts += [heading("Mean activation by position", MAP_NOTE), plot(sortable_map(profiles, first))]
    parts += [heading("Most position-specific features"), specific_table(profiles), bullets(findings)]
    parts += [heading("Single features"), *_feature_sections(profiles)]
    for name, (caption, _) in others:
        parts += [heading(caption.capitalize()), plot(sortable_map(profiles, name))]
    parts += [heading("How we know"), bullets(METHOD)]
    parts += [heading("Position selectivity of all features", level=3), plot(selectivity_histogram(profiles))]
    parts += [heading("Learning curve", level=3), plot(learning_curve(records))]
    return shell(title, [*parts, *regenerate(command, run.document())])


def specific_table(profiles: FeatureProfiles, count: int = 10) -> str:
    """The features with the highest position selectivity."""
    peaks, active, selectivity = profiles.peaks.tolist(), profiles.active.tolist(), profiles.position_selectivity
    rows = [
        [str(feature), str(peaks[feature]), f"{selectivity[feature]:.3f}", f"{100 * active[feature]:.2f} %"]
        for feature in most_position_specific(selectivity)[:count]
    ]
    columns = ["feature", "peak position", "position selectivity", "active"]
    return html_table(columns, rows, label="most position-specific features")


def profile_findings(profiles: FeatureProfiles) -> list[str]:
    """Sentences on the features, the verdict first."""
    d_sae, masked = profiles.mask_off.shape[1], profiles.mask_values is not None
    specific, frequent = profiles.position_specific, len(profiles.position_selectivity)
    lines = [
        f"{len(specific)} of {frequent} features are position-specific{' with the mask off' * masked}: position "
        f"explains at least {100 * POSITION_SPECIFIC:g} % of their variance."
    ]
    if d_sae > frequent:
        lines.append(f"Another {d_sae - frequent} features are active too rarely to measure their selectivity.")
    if specific:
        peaks, selectivity = profiles.peaks.tolist(), profiles.position_selectivity
        named = ", ".join(f"{f} at {peaks[f]} ({selectivity[f]:.2f})" for f in specific[:8])
        more = ", …" if len(specific) > 8 else ""
        lines.append(f"Most position-specific features, with peak position and (selectivity): {named}{more}.")
    mask_off = f"{profiles.fvu_mask_off:.4f} with the mask off" if masked else "the autoencoder has no mask"
    lines.append(f"FVU (fraction of variance unexplained) {profiles.fvu:.4f}; {mask_off}.")
    return lines


def tables(profiles: FeatureProfiles) -> dict[str, tuple[str, Tensor]]:
    """Captions and tables (positions, d_sae): mask off and, if there is a mask, as trained and the mask itself."""
    if profiles.mask_values is None or profiles.used is None:
        return {"mask_off": ("mean activation", profiles.mask_off)}
    return {
        "mask_off": ("mean activation, mask off", profiles.mask_off),
        "used": ("mean activation, as trained", profiles.used),
        "mask_values": ("mask value", profiles.mask_values),
    }


def orders(profiles: FeatureProfiles) -> dict[Order, str]:
    """Captions of the orders in which a map can be sorted."""
    names: dict[Order, str] = {"peak": "position of the peak", "position_selectivity": "position selectivity"}
    names |= {"frequency": "frequency", "number": "feature number"}
    if profiles.mask_values is not None:
        names["mask_values"] = "center of the mask"
    return names


def profile_map(profiles: FeatureProfiles, table: str, features: Sequence[int]) -> go.Figure:
    """Heat map with a row per feature, or with means of several features if there are more than `TALL`.

    table: a key of `tables`.
    """
    values = tables(profiles)[table][1]
    lines, shares = _lines(values, features)
    figure, names = _map_figure(profiles, len(lines)), [_name(line) for line in lines]
    figure.add_heatmap(x=profiles.positions, y=names, z=shares.numpy(), **HEATMAP)
    if len(names) <= NAMED:
        _mark_peaks(figure, torch.tensor(profiles.positions)[values.argmax(0)], features)
    return figure


def sortable_map(profiles: FeatureProfiles, table: str) -> go.Figure:
    """Heat map of all features, with a menu of orders."""
    values, names = tables(profiles)[table][1], orders(profiles)
    figure = _map_figure(profiles, min(TALL, values.shape[1]))
    hover = {**HEATMAP, "hovertemplate": HEATMAP["hovertemplate"].replace("%{y}", "%{customdata}")}
    for place, order in enumerate(names):
        lines, shares = _lines(values, profiles.order(order))
        data = [[_name(line)] * len(profiles.positions) for line in lines]
        rows = {"y": list(range(len(lines))), "z": shares.numpy(), "customdata": data, "visible": place == 0}
        figure.add_heatmap(x=profiles.positions, **rows, **hover)
    figure.update_yaxes(type="linear", showticklabels=False)
    menu = _menu([f"sorted by {label}" for label in names.values()], y=1.02, yanchor="bottom")
    return figure.update_layout(updatemenus=menu, margin={"t": 70})


def _menu(labels: Sequence[str], each: int = 1, **place: float | str) -> list[dict[str, Any]]:
    """A menu that shows one group of traces at a time. each: traces per group."""
    count = range(len(labels))
    shown = [{"visible": [group == chosen for group in count for _ in range(each)]} for chosen in count]
    buttons = [{"label": label, "method": "restyle", "args": [args]} for label, args in zip(labels, shown, strict=True)]
    return [{"buttons": buttons, "x": 0, "xanchor": "left", **place}]


HEATMAP: dict[str, Any] = {
    "zmin": 0,
    "zmax": 100,
    "colorscale": "Cividis",
    "colorbar": {
        "title": "% of the feature's maximum",
        "thickness": 10,
        "orientation": "h",
        "y": 1.02,
        "yanchor": "bottom",
    },
    "hovertemplate": "feature %{y}, position %{x}: %{z} % of the maximum<extra></extra>",
}


def _lines(values: Tensor, features: Sequence[int]) -> tuple[list[Sequence[int]], Tensor]:
    """The features of each row, and a table (rows, positions) in % of each feature's maximum."""
    count = min(len(features), TALL)
    lines = [features[place * len(features) // count : (place + 1) * len(features) // count] for place in range(count)]
    shares = (values / values.amax(0).clamp(min=1e-30)).clamp(0, 1)
    means = torch.stack([shares[:, list(line)].mean(1) for line in lines])
    return lines, (100 * means).round().to(torch.uint8)


def _name(line: Sequence[int]) -> str:
    return f"{line[0]}" + f" and {len(line) - 1} more" * (len(line) > 1)


def _map_figure(profiles: FeatureProfiles, count: int) -> go.Figure:
    figure = figure_of("position", "feature")
    first, last = profiles.positions[0], profiles.positions[-1]
    figure.update_layout(height=min(800, 180 + 13 * count), margin={"l": 50, "r": 10})
    figure.update_xaxes(range=[first - 0.5, last + 0.5])
    figure.update_yaxes(range=[count - 0.5, -0.5], type="category", showgrid=False)
    return figure.update_yaxes(showticklabels=count <= NAMED, dtick=1, tickfont={"size": 10})


def _mark_peaks(figure: go.Figure, peaks: Tensor, features: Sequence[int]) -> None:
    """Mark the peak of every feature. The marks carry feature numbers, so that a page can react to clicks."""
    figure.add_scatter(
        x=peaks[list(features)].tolist(),
        y=[_name([feature]) for feature in features],
        customdata=list(features),
        mode="markers",
        marker={"size": 8, "color": "#fff", "line": {"color": "#1c1c1c", "width": 1}},  # visible on any colour
        selected={"marker": {"color": COLOURS[3]}},
        unselected={"marker": {"opacity": 1}},
        showlegend=False,
        hovertemplate="feature %{y}: peak at position %{x}<extra></extra>",
    )


def feature_profile(profiles: FeatureProfiles, features: Sequence[int]) -> go.Figure:
    """Mean activation of a feature at every position and, if there is a mask, its mask value.

    features: the first is shown; a menu switches to the others.
    """
    masked = profiles.mask_values is not None
    styles = {
        "mask_off": ("mask off" if masked else "mean activation", COLOURS[0], "solid", "y"),
        "used": ("as trained", COLOURS[1], "dash", "y"),
        "mask_values": ("mask value (right axis)", "#888", "dot", "y2"),
    }
    figure, drawn = figure_of("position", "mean activation"), tables(profiles)
    for feature in features:
        for table, (_, values) in drawn.items():
            name, colour, dash, axis = styles[table]
            figure.add_scatter(
                x=profiles.positions,
                y=values[:, feature].tolist(),
                name=name,
                mode="lines",
                line={"color": colour, "dash": dash},
                yaxis=axis,
                visible=feature == features[0],
                hovertemplate="position %{x}: %{y:.3g}<extra>" + name + "</extra>",
            )
    if len(features) > 1:
        menu = _menu([f"feature {feature}" for feature in features], len(drawn), y=1.25)
        figure.update_layout(updatemenus=menu)
    right = {"overlaying": "y", "side": "right", "range": [0, 1.05], "tickvals": [0, 0.5, 1], "showgrid": False}
    figure.update_layout(height=320, showlegend=True, yaxis_rangemode="tozero")
    return figure.update_layout(yaxis2=right) if masked else figure


def describe_feature(profiles: FeatureProfiles, feature: int) -> str:
    """A sentence on one feature."""
    selectivity = profiles.position_selectivity.get(feature)
    text = "unknown (active too rarely)" if selectivity is None else f"{selectivity:.3f}"
    return (
        f"Feature {feature}: peak at position {int(profiles.peaks[feature])}, position selectivity {text}, "
        f"active for {100 * float(profiles.active[feature]):.2f} % of activations."
    )


def _feature_sections(profiles: FeatureProfiles) -> list[str]:
    """Profiles and activating text of the selected features or, without text, of the most position-specific ones."""
    shown = list(profiles.contexts) or profiles.position_specific[:8] or [0]
    described = [
        (describe_feature(profiles, feature), context_table(profiles.contexts.get(feature, ()))) for feature in shown
    ]
    text = render(SECTIONS, note=profiles.note, described=described)
    return [plot(feature_profile(profiles, shown)), text]


def context_table(contexts: Sequence[ActivatingContext]) -> str:
    """The contexts in which a feature is most active; empty if it is never active."""
    return render(CONTEXTS, contexts=contexts)


def selectivity_histogram(profiles: FeatureProfiles) -> go.Figure:
    figure = figure_of("position selectivity (share of variance that position explains)", "features")
    figure.add_histogram(
        x=list(profiles.position_selectivity.values()),
        xbins={"start": -0.05, "end": 1.0, "size": 0.025},
        marker={"color": COLOURS[0]},
    )
    figure.add_vline(
        POSITION_SPECIFIC,
        line_dash="dot",
        line_color="#888",
        annotation_text="position-specific",
        annotation_position="top left",
    )
    figure.update_yaxes(type="log", title="features (log scale)")
    return figure.update_xaxes(range=[-0.06, 1.02])


def learning_curve(records: Sequence[MetricsRecord]) -> go.Figure:
    losses = {record.step: record.loss for record in records if isinstance(record, LossRecord)}
    fvu = {record.step: record.metrics["curve"] for record in records if isinstance(record, EvaluationRecord)}
    curves = {"training loss": [losses], "FVU on held-out activations": [fvu]}
    return learning_curves(curves, "fraction of variance")
