"""The page of one sparse autoencoder, and its figures, which the app draws as well."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from whence.features.evals.measures import POSITION_SPECIFIC
from whence.features.evals.profiles import ActivatingContext, FeatureProfiles, Order
from whence.features.run import FeaturesRun
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.html import bullets
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
MAP_NOTE = (
    "A line is a feature; each is scaled to its own maximum, and features that are never active come last. Sorted by "
    "the position of the peak, noise makes a diagonal, too: position selectivity tells how much of it is position."
)


def run_page(run: FeaturesRun, profiles: FeatureProfiles, records: Sequence[MetricsRecord], command: str) -> bytes:
    """records: losses and evaluations of the run, by step."""
    title = f"whence features: {run.id}"
    labels = html.escape(" · ".join(run.labels().values()))
    parts = [f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>", f"<p class=note>{labels}</p>"]
    parts += [bullets(profile_findings(profiles)), "<h2>Mean activation by position</h2>"]
    parts += [f"<p class=note>{MAP_NOTE}</p>"]
    for place, (name, (caption, _)) in enumerate(tables(profiles).items()):
        parts += [f"<h3>{caption}</h3>", plot(sortable_map(profiles, name), f"map-{name}", place == 0)]
    parts += ["<h2>Single features</h2>", *_feature_sections(profiles)]
    parts += ["<h2>Position selectivity</h2>", plot(selectivity_histogram(profiles), "selectivity", False)]
    parts += ["<h2>Training</h2>", plot(learning_curve(records), "learning", False)]
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
    names, shares = _lines(values, features)
    figure = _map_figure(profiles, len(names))
    figure.add_heatmap(x=profiles.positions, y=names, z=shares.numpy(), **HEATMAP)
    if len(names) <= NAMED:
        _mark_peaks(figure, torch.tensor(profiles.positions)[values.argmax(0)], features)
    return figure


def sortable_map(profiles: FeatureProfiles, table: str) -> go.Figure:
    """All features, with a menu of orders."""
    values, names = tables(profiles)[table][1], orders(profiles)
    sorted_lines = [_lines(values, profiles.order(order)) for order in names]
    count = len(sorted_lines[0][0])
    figure = _map_figure(profiles, count)
    buttons = []
    for place, ((features, shares), label) in enumerate(zip(sorted_lines, names.values(), strict=True)):
        figure.add_heatmap(
            x=profiles.positions,
            y=list(range(count)),
            z=shares.numpy(),
            customdata=[[feature] * len(profiles.positions) for feature in features],
            visible=place == 0,
            **{**HEATMAP, "hovertemplate": HEATMAP["hovertemplate"].replace("%{y}", "%{customdata}")},
        )
        shown = [other == place for other in range(len(names))]
        buttons.append({"label": f"sorted by {label}", "method": "restyle", "args": [{"visible": shown}]})
    figure.update_yaxes(type="linear", showticklabels=False)
    menu = {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "showactive": True}
    return figure.update_layout(updatemenus=[menu], margin={"t": 70})


HEATMAP: dict[str, Any] = {
    "zmin": 0,
    "zmax": 100,
    "colorscale": "Cividis",
    "colorbar": {"title": "% of its maximum", "thickness": 10, "orientation": "h", "y": 1.02, "yanchor": "bottom"},
    "hovertemplate": "feature %{y}, position %{x}: %{z} % of its maximum<extra></extra>",
}


def _lines(values: Tensor, features: Sequence[int]) -> tuple[list[str], Tensor]:
    """Names of lines, and (lines, positions) in % of each feature's maximum."""
    count = min(len(features), TALL)
    lines = [features[place * len(features) // count : (place + 1) * len(features) // count] for place in range(count)]
    shares = (values / values.amax(0).clamp(min=1e-30)).clamp(0, 1)
    means = torch.stack([shares[:, list(line)].mean(1) for line in lines])
    return [_name(line) for line in lines], (100 * means).round().to(torch.uint8)


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
        buttons = [
            {
                "label": f"feature {feature}",
                "method": "restyle",
                "args": [{"visible": [other == feature for other in features for _ in drawn]}],
            }
            for feature in features
        ]
        figure.update_layout(updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.25}])
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
    parts: list[str] = [plot(feature_profile(profiles, shown), "profile", False)]
    if profiles.note:
        parts.append(f"<p class=note>{html.escape(profiles.note)}</p>")
    for feature in shown:
        text = context_table(profiles.contexts[feature]) if feature in profiles.contexts else ""
        opened = " open" * (feature == shown[0])
        summary = html.escape(describe_feature(profiles, feature))
        parts.append(f"<details class=contexts{opened}><summary>{summary}</summary>{text}</details>")
    return parts


def context_table(contexts: Sequence[ActivatingContext]) -> str:
    """The text of one feature, where it is most active."""
    rows = "".join(
        f"<tr><td class=n>{c.value:.3g}<td class=n>{c.position}<td>{html.escape(c.before)} "
        f"<mark>{html.escape(c.token)}</mark> {html.escape(c.after)}</tr>"
        for c in contexts
    )
    return f"<table><tr><th>activation<th>position<th>held-out text</tr>{rows}</table>"


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
    figure = figure_of("step", "fraction of variance")
    losses = {record.step: record.loss for record in records if isinstance(record, LossRecord)}
    fvu = {record.step: record.metrics["curve"] for record in records if isinstance(record, EvaluationRecord)}
    figure.add_scatter(
        x=list(losses),
        y=list(losses.values()),
        name="training loss",
        mode="lines",
        line={"color": COLOURS[1], "dash": DASHES[0], "width": 1},
    )
    figure.add_scatter(
        x=list(fvu),
        y=list(fvu.values()),
        name="FVU on held-out activations",
        mode="lines+markers",
        line={"color": COLOURS[0]},
    )
    return figure
