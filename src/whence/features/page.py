"""The page of one sparse autoencoder, and its figures, which the app draws as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from whence.features.evals.measures import POSITION_SPECIFIC
from whence.features.evals.profiles import ActivatingContext, FeatureProfiles, Order
from whence.features.run import FeaturesRun
from whence.report.figures import COLOURS, figure_of, learning_curves
from whence.report.html import bullets, heading, render
from whence.report.shell import plot, regenerate, shell
from whence.store.records import EvaluationRecord, LossRecord, MetricsRecord

TALL = 640
"""Lines of a map; where there are more features, a line is the mean of several."""
NAMED = 45
"""Lines up to which there is room for the name of each."""
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
MAP_NOTE = (
    "A line is a feature; each is scaled to its own maximum, and features that are never active come last. Sorted by "
    "the position of the peak, noise makes a diagonal, too: position selectivity tells how much of it is position."
)


def run_page(run: FeaturesRun, profiles: FeatureProfiles, records: Sequence[MetricsRecord], command: str) -> bytes:
    """records: losses and evaluations of the run, by step."""
    title = f"whence features: {run.id}"
    parts = [f"<style>{STYLE}</style>", heading(title, " · ".join(run.labels().values()), level=1)]
    parts += [bullets(profile_findings(profiles)), heading("Mean activation by position", MAP_NOTE)]
    for name, (caption, _) in tables(profiles).items():
        parts += [heading(caption, level=3), plot(sortable_map(profiles, name))]
    parts += [heading("Single features"), *_feature_sections(profiles)]
    parts += [heading("Position selectivity"), plot(selectivity_histogram(profiles))]
    parts += [heading("Training"), plot(learning_curve(records))]
    parts += [f"<p class=note>Run <code>{run.id}</code>, on activations of held-out documents.</p>"]
    return shell(title, [*parts, *regenerate(command, run.document())])


def profile_findings(profiles: FeatureProfiles) -> list[str]:
    """In words."""
    d_sae, masked = profiles.mask_off.shape[1], profiles.mask_values is not None
    specific, frequent = profiles.position_specific, len(profiles.position_selectivity)
    lines = [
        f"{len(specific)} of {frequent} features are position-specific{', mask off' * masked}: position explains at "
        f"least {100 * POSITION_SPECIFIC:g} % of their variance. The other {d_sae - frequent} are too rarely active to "
        "say."
    ]
    if specific:
        peaks, selectivity = profiles.peaks.tolist(), profiles.position_selectivity
        named = ", ".join(f"{f} at {peaks[f]} ({selectivity[f]:.2f})" for f in specific[:8])
        more = ", …" if len(specific) > 8 else ""
        lines.append(f"Most position-specific, with the position of their peak: {named}{more}.")
    mask_off = f"with mask off {profiles.fvu_mask_off:.4f}" if masked else "there are no masks"
    lines.append(f"FVU {profiles.fvu:.4f}; {mask_off}.")
    return lines


def tables(profiles: FeatureProfiles) -> dict[str, tuple[str, Tensor]]:
    """By name, in words and as (positions, d_sae): mask off; as trained, and the mask itself, where there is one."""
    if profiles.mask_values is None or profiles.used is None:
        return {"mask_off": ("mean activation", profiles.mask_off)}
    return {
        "mask_off": ("mean activation, mask off", profiles.mask_off),
        "used": ("mean activation, as trained", profiles.used),
        "mask_values": ("mask value", profiles.mask_values),
    }


def orders(profiles: FeatureProfiles) -> dict[Order, str]:
    """By what a map can be sorted, in words."""
    names: dict[Order, str] = {"peak": "position of the peak", "position_selectivity": "position selectivity"}
    names |= {"frequency": "frequency", "number": "number"}
    if profiles.mask_values is not None:
        names["mask_values"] = "centre of the mask"
    return names


def profile_map(profiles: FeatureProfiles, table: str, features: Sequence[int]) -> go.Figure:
    """A line is a feature, from the first at the top; where there are more than room for, the mean of several.

    table: one of `tables`.
    """
    values = tables(profiles)[table][1]
    lines, shares = _lines(values, features)
    figure, names = _map_figure(profiles, len(lines)), [_name(line) for line in lines]
    figure.add_heatmap(x=profiles.positions, y=names, z=shares.numpy(), **HEATMAP)
    if len(names) <= NAMED:
        _mark_peaks(figure, torch.tensor(profiles.positions)[values.argmax(0)], features)
    return figure


def sortable_map(profiles: FeatureProfiles, table: str) -> go.Figure:
    """All features, with a menu of orders."""
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
    """To choose from groups of so many traces each."""
    count = range(len(labels))
    shown = [{"visible": [group == chosen for group in count for _ in range(each)]} for chosen in count]
    buttons = [{"label": label, "method": "restyle", "args": [args]} for label, args in zip(labels, shown, strict=True)]
    return [{"buttons": buttons, "x": 0, "xanchor": "left", **place}]


HEATMAP: dict[str, Any] = {
    "zmin": 0,
    "zmax": 100,
    "colorscale": "Cividis",
    "colorbar": {"title": "% of its maximum", "thickness": 10, "orientation": "h", "y": 1.02, "yanchor": "bottom"},
    "hovertemplate": "feature %{y}, position %{x}: %{z} % of its maximum<extra></extra>",
}


def _lines(values: Tensor, features: Sequence[int]) -> tuple[list[Sequence[int]], Tensor]:
    """The features of each line, and (lines, positions) in % of each feature's maximum."""
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
    """The marks know their features, so that a page can tell which was clicked."""
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
    """Mean activation of a feature at every position, and its mask value, where there is a mask.

    features: the first is shown, the others can be chosen from a menu.
    """
    masked = profiles.mask_values is not None
    styles = {
        "mask_off": ("mask off" if masked else "mean activation", COLOURS[0], "solid", "y"),
        "used": ("as trained", COLOURS[1], "dash", "y"),
        "mask_values": ("mask value (right)", "#888", "dot", "y2"),
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
    """In words."""
    selectivity = profiles.position_selectivity.get(feature)
    text = "unknown (too rarely active)" if selectivity is None else f"{selectivity:.3f}"
    return (
        f"Feature {feature}: peak at position {int(profiles.peaks[feature])}, position selectivity {text}, "
        f"active at {100 * float(profiles.active[feature]):.2f} % of activations."
    )


def _feature_sections(profiles: FeatureProfiles) -> list[str]:
    """The profiles of features with text, or of the most position-specific, and the text."""
    shown = list(profiles.contexts) or profiles.position_specific[:8] or [0]
    described = [
        (describe_feature(profiles, feature), context_table(profiles.contexts.get(feature, ()))) for feature in shown
    ]
    text = render(SECTIONS, note=profiles.note, described=described)
    return [plot(feature_profile(profiles, shown)), text]


def context_table(contexts: Sequence[ActivatingContext]) -> str:
    """The text of one feature, where it is most active; empty where it never is."""
    return render(CONTEXTS, contexts=contexts)


def selectivity_histogram(profiles: FeatureProfiles) -> go.Figure:
    figure = figure_of("position selectivity: share of variance that position explains", "features")
    figure.add_histogram(
        x=list(profiles.position_selectivity.values()),
        xbins={"start": -0.05, "end": 1.0, "size": 0.025},
        marker={"color": COLOURS[0]},
    )
    figure.add_vline(
        POSITION_SPECIFIC,
        line_dash="dot",
        line_color="#888",
        annotation_text="position-specific from here on",
        annotation_position="top left",
    )
    figure.update_yaxes(type="log", title="features (logarithmic)")
    return figure.update_xaxes(range=[-0.06, 1.02])


def learning_curve(records: Sequence[MetricsRecord]) -> go.Figure:
    losses = {record.step: record.loss for record in records if isinstance(record, LossRecord)}
    fvu = {record.step: record.metrics["curve"] for record in records if isinstance(record, EvaluationRecord)}
    curves = {"training loss": [losses], "FVU on held-out activations": [fvu]}
    return learning_curves(curves, "fraction of variance")
