"""Figures. An encoding has the same colour and dash wherever it is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from whence.arena.curves import accuracy_by_position, learning_curve
from whence.arena.score import Score
from whence.arena.table import Table
from whence.shortcuts.by_position import baseline_by_position

# Okabe and Ito's palette: told apart with any kind of colour vision; the dash tells the rest apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D1F", "#7A7A7A")
DASHES = ("solid", "dash", "dot", "dashdot")
KNOWN = ("rope", "alibi", "learned", "sinusoidal", "t5", "none", "fire", "kerple")


def line_style(encoding: str) -> dict[str, str]:
    """From the name alone, so that a figure made next year, of other runs, looks the same."""
    name = encoding.split("+")[-1].split(":")[0]
    place = KNOWN.index(name) if name in KNOWN else _hash(name) % len(COLOURS)
    dash = 0 if encoding == name and name in KNOWN else 1 + _hash(encoding) % (len(DASHES) - 1)
    return {"color": COLOURS[place], "dash": DASHES[dash]}


def swatch(encoding: str) -> str:
    """Its colour, as a dot of HTML."""
    return swatch_of(line_style(encoding))


def swatch_of(style: Mapping[str, str]) -> str:
    return f'<span class=swatch style="background:{style["color"]}"></span>'


def _hash(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


def learning_curves(table: Table) -> go.Figure:
    """Accuracy within the training length over steps: every seed a thin line, their mean a thick one."""
    figure = _figure("training steps", "accuracy within the training length (%)")
    for row in table.rows:
        curves = [learning_curve(member) for member in row.members]
        for curve in curves:
            _add_line(figure, curve, row.encoding, "step", width=1, opacity=0.35, legend=False)
        if curves:
            mean = [(points[0][0], sum(p[1] for p in points) / len(points)) for points in zip(*curves, strict=True)]
            _add_line(figure, mean, row.encoding, "step", width=3)
    _mark_floor(figure, next((row.within for row in table.rows if row.within), None))
    return figure


def accuracy_over_lengths(table: Table) -> go.Figure:
    """Accuracy at every length: seeds as dots, their mean as a line, the end of training marked."""
    figure = _figure("length", "accuracy (%)")
    floors: dict[int, float] = {}
    for row in table.rows:
        by_length = row.by_length
        floors = floors or {n: max(table.run.floors(n).values()) for n in by_length}
        dots = [(n, value) for n, values in by_length.items() for value in values]
        _add_line(figure, dots, row.encoding, "length", width=0, legend=False, mode="markers")
        mean = [(n, sum(values) / len(values)) for n, values in by_length.items()]
        _add_line(figure, mean, row.encoding, "length", width=3)
    if floors:
        _add_line(figure, list(floors.items()), "floor", "length", width=1, style={"color": "#888", "dash": "dot"})
        figure.update_xaxes(type="log", tickvals=list(floors), ticktext=[str(n) for n in floors])
    end = [(table.run.train_length, 0.0), (table.run.train_length, 1.0)]  # a line of its own: marks ignore a log axis
    _add_line(figure, end, "end of training", "length", width=1, style={"color": "#888", "dash": "dash"})
    return figure


def accuracy_over_positions(table: Table) -> go.Figure | None:
    """Accuracy at every position of the longest sequences, for tasks with an answer per token."""
    length = max((table.run.train_length, *table.run.test_lengths))
    lines = {row.encoding: accuracy_by_position(row, length) for row in table.rows if row.members}
    if not any(lines.values()):
        return None
    figure = _figure("position", f"accuracy in sequences of length {length} (%)")
    for encoding, points in lines.items():
        _add_line(figure, points, encoding, "position", width=2)
    task = table.run.task.build()
    end = table.run.train_length if task.dense else None
    if end is not None:
        figure.add_vline(end, line_dash="dot", line_color="#888", annotation_text="end of training")
    floors = list(baseline_by_position(task, length).items())
    _add_line(figure, floors, "floor", "position", width=1, style={"color": "#888", "dash": "dot"})
    return figure


def _figure(across: str, up: str) -> go.Figure:
    return figure_of(across, up).update_layout(yaxis_range=[0, 103])


def figure_of(across: str, up: str) -> go.Figure:
    """Empty, with its axes named."""
    figure = go.Figure()
    figure.update_layout(
        xaxis_title=across,
        yaxis_title=up,
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},  # grows upwards, away from the lines
    )
    return figure


def _mark_floor(figure: go.Figure, score: Score | None) -> None:
    if score is not None:
        figure.add_hline(
            100 * score.floor,
            line_dash="dot",
            line_color="#888",
            annotation_text=f"floor: {score.floor_name}",
            annotation_position="bottom right",
        )


def _add_line(
    figure: go.Figure,
    points: Sequence[tuple[int, float]],
    name: str,
    unit: str,
    *,
    width: int,
    opacity: float = 1.0,
    legend: bool = True,
    mode: str = "lines",
    style: dict[str, str] | None = None,
) -> None:
    style = style or line_style(name)
    figure.add_scatter(
        x=[x for x, _ in points],
        y=[100 * y for _, y in points],
        mode=mode,
        name=name,
        legendgroup=name,
        line={**style, "width": width},
        marker={"color": style["color"], "size": 7, "opacity": 0.7},
        opacity=opacity,
        showlegend=legend,
        hovertemplate=unit + " %{x}: %{y:.1f} %<extra>" + name.replace("%", "") + "</extra>",
    )
