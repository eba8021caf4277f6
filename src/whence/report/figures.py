"""Figures. An encoding has the same colour and dash wherever it is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import plotly.graph_objects as go

# Okabe and Ito's palette: told apart with any kind of colour vision; the dash tells the rest apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D1F", "#5B5B5B")
DASHES = ("solid", "dash", "dot", "dashdot")
KNOWN = ("rope", "alibi", "learned", "sinusoidal", "t5", "none", "fire", "kerple")


def line_style(encoding: str) -> dict[str, str]:
    """From the name alone, so that a figure made next year, of other runs, looks the same."""
    name = encoding.split("+")[-1].split(":")[0]
    place = KNOWN.index(name) if name in KNOWN else _hash(name) % len(COLOURS)
    dash = 0 if encoding == name and name in KNOWN else 1 + _hash(encoding) % (len(DASHES) - 1)
    return {"color": COLOURS[place], "dash": DASHES[dash]}


def _hash(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


def learning_curves(
    curves: dict[str, list[list[tuple[int, float]]]], floor: float | None, floor_name: str
) -> go.Figure:
    """Accuracy within the training length over steps: every seed a thin line, their mean a thick one."""
    figure = go.Figure()
    for encoding, seeds in curves.items():
        style = line_style(encoding)
        for seed in seeds:
            _add_line(figure, seed, encoding, {**style, "width": 1}, opacity=0.35, legend=False)
        if seeds:
            mean = [(points[0][0], sum(p[1] for p in points) / len(points)) for points in zip(*seeds, strict=True)]
            _add_line(figure, mean, encoding, {**style, "width": 3}, opacity=1.0, legend=True)
    if floor is not None:
        figure.add_hline(
            100 * floor,
            line_dash="dot",
            line_color="#888",
            annotation_text=f"floor: {floor_name}",
            annotation_position="bottom right",
        )
    figure.update_layout(
        xaxis_title="training steps",
        yaxis_title="accuracy within the training length (%)",
        yaxis_range=[0, 102],
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "y": 1.12},
    )
    return figure


def _add_line(
    figure: go.Figure, points: Sequence[tuple[int, float]], name: str, style: dict, *, opacity: float, legend: bool
) -> None:
    figure.add_scatter(
        x=[step for step, _ in points],
        y=[100 * value for _, value in points],
        mode="lines",
        name=name,
        legendgroup=name,
        line=style,
        opacity=opacity,
        showlegend=legend,
        hovertemplate="step %{x}: %{y:.1f} %<extra>" + name.replace("%", "") + "</extra>",
    )
