"""Figures with a common layout. An encoding has the same colour and dash in all figures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

# The palette of Okabe and Ito (2008), which is distinguishable with any colour vision. Dashes distinguish the rest.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D1F", "#7A7A7A")
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")
KNOWN = ("rope", "alibi", "learned", "sinusoidal", "t5", "none", "fire", "kerple")

Curve = Mapping[int, float]
"""By step"""


def line_style(encoding: str) -> dict[str, str]:
    """Colour and dash as a function of the name, so that they are the same in all figures."""
    name = encoding.split("+")[-1].split(":")[0]
    place = KNOWN.index(name) if name in KNOWN else _hash(name) % len(COLOURS)
    dash = 0 if encoding == name and name in KNOWN else 1 + _hash(encoding) % (len(DASHES) - 1)
    return {"color": COLOURS[place], "dash": DASHES[dash]}


def _hash(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


def figure_of(across: str, up: str) -> go.Figure:
    """An empty figure with axis titles."""
    figure = go.Figure()
    figure.update_layout(
        xaxis_title=across,
        yaxis_title=up,
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},  # above the plot, growing upwards
    )
    return figure


def style_at(place: int) -> dict[str, str]:
    """Colour and dash by the index of a line in its figure."""
    return {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[place // len(COLOURS) % len(DASHES)]}


def learning_curves(
    curves: Mapping[str, Sequence[Curve]],
    label: str,
    styles: Mapping[str, Mapping[str, str]] | None = None,
    *,
    unit: str = "",
    markers: bool = False,
    log: bool = False,
) -> go.Figure:
    """By name, a thin line per seed and a thick line for the mean over the steps that all seeds have."""
    figure = figure_of("training steps", label)
    for place, (name, seeds) in enumerate(curves.items()):
        style = (styles or {}).get(name) or style_at(place)
        hover = f"step %{{x}}: %{{y:.4g}}{unit}<extra>{name.replace('%', '')}</extra>"
        shared = sorted(set(seeds[0]).intersection(*seeds[1:])) if seeds else []
        mean = {step: sum(curve[step] for curve in seeds) / len(seeds) for step in shared}
        lines = [(curve, 1, 0.35) for curve in seeds] if len(seeds) > 1 else []
        for curve, width, opacity in [*lines, (mean, 3, 1.0)]:
            figure.add_scatter(
                x=list(curve),
                y=list(curve.values()),
                name=name,
                legendgroup=name,
                mode="lines+markers" if markers else "lines",
                line={**style, "width": width},
                marker={"color": style["color"], "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7},
                opacity=opacity,
                showlegend=curve is mean,
                hovertemplate=hover,
            )
    if log:
        figure.update_yaxes(type="log")
    if len(curves) > 8 or max(map(len, curves), default=0) > 24:  # a vertical legend below the figure
        legend = {"orientation": "v", "y": -0.2, "yanchor": "top", "x": 0}
        figure.update_layout(height=400 + 22 * len(curves), legend=legend)
    return figure
