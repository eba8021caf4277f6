"""Variants of a field side by side, for terminals and pages."""

from __future__ import annotations

import plotly.graph_objects as go

from whence.fields.table import Row, Table
from whence.report.figures import COLOURS, figure_of


def cells(table: Table) -> tuple[list[str], list[list[str]]]:
    """Columns, and a row for every variant."""
    scales = _scales(table)
    columns = ["variant", "validation ×1", *(f"test ×{scale}" for scale in scales), "parameters"]
    return [*columns, "encode ms", "decode ms", "MiB", "seeds"], [_cells(row, scales) for row in table.rows]


def _scales(table: Table) -> list[str]:
    return next((row.scales for row in table.rows if row.metrics), [])


def _cells(row: Row, scales: list[str]) -> list[str]:
    found = []
    for scale in scales:
        mean, between = row.mean(scale), row.interval(scale) if row.metrics else None
        found.append(
            "–" if mean is None else f"{mean:.2f}" + (f" [{between[0]:.2f}, {between[1]:.2f}]" if between else "")
        )
    times = [f"{row.cost[name]:.1f}" if row.cost else "–" for name in ("encode", "decode", "memory")]
    chosen = row.mean(scales[0], "validation") if scales else None
    known = "–" if chosen is None else f"{chosen:.2f}"
    return [row.name, known, *found, f"{row.parameters:,}", *times, str(len(row.metrics))]


def quality_by_variant(table: Table) -> go.Figure:
    """At the input's own resolution: every seed a dot, means with 95 % intervals."""
    scale = next(iter(_scales(table)), "1")
    figure = figure_of(f"PSNR (dB) of the field at ×{scale}, signals never trained on", "")
    rows = [row for row in table.rows if row.metrics]
    dots = [(value, row.name) for row in rows for value in row.quality(scale).values()]
    figure.add_scatter(
        x=[value for value, _ in dots],
        y=[name for _, name in dots],
        name="seed",
        mode="markers",
        marker={"color": COLOURS[1], "size": 8, "symbol": "circle-open"},
    )
    means = [row.mean(scale) or 0.0 for row in rows]
    reach = [(between[1] - between[0]) / 2 if (between := row.interval(scale)) else 0.0 for row in rows]
    figure.add_scatter(
        x=means,
        y=[row.name for row in rows],
        name="mean, 95 %",
        mode="markers",
        marker={"color": COLOURS[0], "size": 11, "symbol": "diamond"},
        error_x={"type": "data", "array": reach, "color": COLOURS[0]},
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(ticksuffix=" dB")
    figure.update_layout(height=160 + 44 * len(rows))
    return figure
