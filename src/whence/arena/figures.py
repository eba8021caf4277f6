"""Figures of a comparison of encodings."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from whence.arena.curves import accuracy_by_length, accuracy_by_position, learning_curve
from whence.arena.run import ArenaRun
from whence.arena.score import Score, id_score
from whence.experiments.table import Table
from whence.report.figures import figure_of, line_style
from whence.shortcuts.by_position import baseline_by_position


def learning_curves(table: Table[ArenaRun]) -> go.Figure:
    """ID accuracy over steps: every seed a thin line, their mean a thick one."""
    figure = _figure("training steps", "ID accuracy (%)")
    for row in table.rows:
        curves = [learning_curve(result) for result in row.finished]
        for curve in curves:
            _add_line(figure, curve, row.name, "step", width=1, opacity=0.35, legend=False)
        if curves:
            mean = [(points[0][0], sum(p[1] for p in points) / len(points)) for points in zip(*curves, strict=True)]
            _add_line(figure, mean, row.name, "step", width=3)
    _mark_baseline(figure, next(filter(None, map(id_score, table.rows)), None))
    return figure


def accuracy_over_lengths(table: Table[ArenaRun]) -> go.Figure | None:
    """Accuracy at every length: seeds as dots, their mean as a line, the end of training marked."""
    run = table.planned.run
    if not run.test_lengths:
        return None
    figure = _figure("length", "accuracy (%)")
    floors: dict[int, float] = {}
    for row in table.rows:
        by_length = accuracy_by_length(row)
        floors = floors or {n: max(run.floors(n).values()) for n in by_length}
        dots = [(n, value) for n, values in by_length.items() for value in values]
        _add_line(figure, dots, row.name, "length", width=0, legend=False, mode="markers")
        mean = [(n, sum(values) / len(values)) for n, values in by_length.items()]
        _add_line(figure, mean, row.name, "length", width=3)
    if floors:
        _add_line(
            figure, list(floors.items()), "shortcut baseline", "length", width=1, style={"color": "#888", "dash": "dot"}
        )
        figure.update_xaxes(type="log", tickvals=list(floors), ticktext=[str(n) for n in floors])
    end = [(run.train_length, 0.0), (run.train_length, 1.0)]  # a line of its own: marks ignore a log axis
    _add_line(figure, end, "end of training", "length", width=1, style={"color": "#888", "dash": "dash"})
    return figure


def accuracy_over_positions(table: Table[ArenaRun]) -> go.Figure | None:
    """Accuracy at every position of the longest sequences, for tasks with an answer per token."""
    run = table.planned.run
    length = max((run.train_length, *run.test_lengths))
    lines = {row.name: accuracy_by_position(row, length) for row in table.rows if row.finished}
    if not any(lines.values()):
        return None
    figure = _figure("position", f"accuracy in sequences of length {length} (%)")
    for encoding, points in lines.items():
        _add_line(figure, points, encoding, "position", width=2)
    task = run.task.build()
    end = run.train_length if task.dense else None
    if end is not None:
        figure.add_vline(end, line_dash="dot", line_color="#888", annotation_text="end of training")
    floors = list(baseline_by_position(task, length).items())
    _add_line(figure, floors, "shortcut baseline", "position", width=1, style={"color": "#888", "dash": "dot"})
    return figure


def _figure(across: str, up: str) -> go.Figure:
    return figure_of(across, up).update_layout(yaxis_range=[0, 103])


def _mark_baseline(figure: go.Figure, score: Score | None) -> None:
    if score is not None:
        figure.add_hline(
            100 * score.baseline,
            line_dash="dot",
            line_color="#888",
            annotation_text=f"shortcut baseline: {score.baseline_name}",
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
