"""Where features speak, as figures that others can put on their pages: all of them as a map, one of them as lines."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from whence.features.map_page import TALL, profiles, shares
from whence.features.view import View
from whence.report.figures import COLOURS, figure_of

NAMED = 45
"""Lines up to which there is room for the name of each."""


def profile_map(found: View, table: str, features: Sequence[int]) -> go.Figure:
    """A line is a feature, from the first at the top; where there are more than room for, the mean of several.

    table: one of `profiles`.
    """
    count = min(len(features), TALL)
    lines = [features[place * len(features) // count : (place + 1) * len(features) // count] for place in range(count)]
    values = profiles(found)[table][1]
    scaled = shares(values)
    figure = figure_of("position", "feature")
    figure.add_heatmap(
        x=found.positions.numpy(),
        y=[_named(line) for line in lines],
        z=(100 * torch.stack([scaled[:, line].mean(1) for line in lines])).round().to(torch.uint8).numpy(),
        zmin=0,
        zmax=100,
        colorscale="Cividis",
        colorbar={"title": "% of its maximum", "thickness": 10, "orientation": "h", "y": 1.02, "yanchor": "bottom"},
        hovertemplate="feature %{y}, position %{x}: %{z} % of its maximum<extra></extra>",
    )
    if count <= NAMED:
        _mark_peaks(figure, found.positions[values.argmax(0)], features)
    first, last = int(found.positions[0]), int(found.positions[-1])
    figure.update_layout(height=min(800, 180 + 13 * count), margin={"l": 50, "r": 10})
    figure.update_xaxes(range=[first - 0.5, last + 0.5])
    figure.update_yaxes(range=[count - 0.5, -0.5], type="category", showgrid=False)
    return figure.update_yaxes(showticklabels=count <= NAMED, dtick=1, tickfont={"size": 10})


def _mark_peaks(figure: go.Figure, peaks: Tensor, features: Sequence[int]) -> None:
    """The marks know their features, so that a page can tell which was clicked."""
    figure.add_scatter(
        x=peaks[list(features)].tolist(),
        y=[_named([feature]) for feature in features],
        customdata=list(features),
        mode="markers",
        marker={"size": 8, "color": "#fff", "line": {"color": "#1c1c1c", "width": 1}},  # seen on any colour of the map
        selected={"marker": {"color": COLOURS[3]}},
        unselected={"marker": {"opacity": 1}},
        showlegend=False,
        hovertemplate="feature %{y}: peak at position %{x}<extra></extra>",
    )


def _named(line: Sequence[int]) -> str:
    return f"{line[0]}" + f" and {len(line) - 1} more" * (len(line) > 1)


def profile(found: View, feature: int) -> go.Figure:
    """Its mean activation at every position; how far it may speak there, where a mask says so, in terms of all."""
    styles = {
        "lifted": ("mean activation" if found.assigned is None else "masks lifted", COLOURS[0], "solid", "y"),
        "used": ("as trained", COLOURS[1], "dash", "y"),
        "assigned": ("may speak (right)", "#888", "dot", "y2"),
    }
    figure = figure_of("position", "mean activation")
    for table, (_, values) in profiles(found).items():
        name, colour, dash, axis = styles[table]
        figure.add_scatter(
            x=found.positions.tolist(),
            y=values[:, feature].tolist(),
            name=name,
            mode="lines",
            line={"color": colour, "dash": dash},
            yaxis=axis,
            hovertemplate="position %{x}: %{y:.3g}<extra>" + name + "</extra>",
        )
    right = {"overlaying": "y", "side": "right", "range": [0, 1.05], "tickvals": [0, 0.5, 1], "showgrid": False}
    figure.update_layout(height=320, showlegend=True, yaxis_rangemode="tozero")
    return figure if found.assigned is None else figure.update_layout(yaxis2=right)


def about(found: View, feature: int) -> str:
    """In words."""
    degree = found.fidelity.get(feature)
    told = "too rare to say" if degree is None else f"{degree:.3f}"
    return (
        f"Feature {feature}: peak at position {int(found.peaks[feature])}, fidelity {told}, "
        f"active at {100 * float(found.active[feature]):.2f} % of states."
    )
