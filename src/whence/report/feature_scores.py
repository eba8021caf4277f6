"""Figures of a comparison of autoencoders. A preset has the same colour and dash wherever it is drawn."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from whence import stats
from whence.features.comparison import PRESETS
from whence.features.curves import Curves, mean_curve
from whence.features.table import Row, cell
from whence.report.figures import COLOURS, DASHES, figure_of

STRICT = {
    "plain_topk": "none",
    "plain_l1": "none",
    "001_run02_soft_mask": "soft",
    "002_run02_gaussian_mask": "Gaussian",
    "001_run01_hard_mask": "hard",
    "002_run01_position_masks": "hard",
    "static_slice": "hard",
}
"""Presets that differ in how strict their mask is, from none to hard."""
STRICT_COLUMNS = ("FVU", "L0", "FVU lifted", "L0 lifted", "bound", "retention")


def style(name: str) -> dict[str, str]:
    """By the place among all presets, baselines first; a control has the colour of what it is a control of."""
    names = sorted(PRESETS.names(), key=lambda preset: (preset[0].isdigit(), preset))
    base = name.split(", ")[0]
    place = names.index(base) if base in names else len(names)
    dash = DASHES[-1] if base != name else DASHES[place // len(COLOURS) % (len(DASHES) - 1)]
    return {"color": COLOURS[place % len(COLOURS)], "dash": dash}


def bars(rows: Sequence[Row], column: str, label: str) -> go.Figure:
    """Means as bars, seeds as dots."""
    return _bars({row.name: list(row.values(column).values()) for row in rows}, label)


def final_losses(curves: Mapping[str, Curves]) -> go.Figure | None:
    values = {name: list(those.final_losses.values()) for name, those in curves.items() if those.final_losses}
    return _bars(values, "training loss, penalties included") if values else None


def recovered(rows: Sequence[Row]) -> go.Figure | None:
    """Free and bound directions beside each other; none where nobody knows the true ones."""
    if not any(row.values("free found") for row in rows):
        return None
    figure = figure_of("mean cosine with the true directions, matched one to one", "")
    for place, kind in enumerate(("bound", "free")):
        column = f"{kind} found"
        values = {row.name: list(row.values(column).values()) for row in rows}
        _add(figure, values, kind, dict.fromkeys(values, COLOURS[place]), str(place))
    figure.update_layout(barmode="group", height=_height(2 * len(rows)), scattermode="group")
    return figure.update_yaxes(autorange="reversed", ticksuffix="  ")


def over_steps(curves: Mapping[str, Mapping[str, Mapping[int, float]]], label: str) -> go.Figure:
    """The mean over runs of each preset."""
    figure = figure_of("step", f"{label}, mean over seeds")
    for name, runs in curves.items():
        mean = mean_curve(runs.values())
        figure.add_scatter(
            x=list(mean), y=list(mean.values()), name=name, mode="lines", line={**style(name), "width": 2}
        )
    figure.update_yaxes(type="log")
    # names of presets are long: below the figure, where a narrow page has room for them, too
    below = {"orientation": "h", "y": -0.18, "yanchor": "top", "font": {"size": 11}}
    return figure.update_layout(height=420 + 12 * len(curves), legend=below)


def by_strictness(rows: Sequence[Row]) -> list[Row]:
    """Those that differ in how strict their mask is, from none to hard; none where fewer than two have a result."""
    by_name = {row.name: row for row in rows if row.metrics}
    there = [by_name[name] for name in STRICT if name in by_name]
    return there if len(there) > 1 else []


def strictness(rows: Sequence[Row]) -> str:
    """They, side by side."""
    head = "".join(f"<th>{name}" for name in ("mask", "preset", *STRICT_COLUMNS))
    body = "".join(
        f"<tr><td>{STRICT[row.name]}<td>{html.escape(row.name)}"
        + "".join(f"<td class=n>{cell(row.mean(column), column)}" for column in STRICT_COLUMNS)
        + "</tr>"
        for row in rows
    )
    return (
        "<p class=note>The same runs, by how strict their mask is. What is unexplained "
        "is comparable at a like number of active features (L0). Lifted: how a dictionary does once its mask is gone; "
        "what was learned, rather than imposed, stays.</p>"
        f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"
    )


def strict_bars(rows: Sequence[Row]) -> go.Figure:
    """With their masks, and with masks lifted."""
    figure = figure_of("FVU", "")
    for place, (column, name) in enumerate((("FVU", "with its mask"), ("FVU lifted", "mask lifted"))):
        values = {f"{STRICT[row.name]}: {row.name}": list(row.values(column).values()) for row in rows}
        _add(figure, values, name, dict.fromkeys(values, COLOURS[place]), str(place))
    figure.update_layout(barmode="group", height=_height(2 * len(rows)), scattermode="group")
    return figure.update_yaxes(autorange="reversed", ticksuffix="  ")


def _bars(values: Mapping[str, Sequence[float]], label: str) -> go.Figure:
    figure = figure_of(label, "")
    _add(figure, values, "mean", {name: style(name)["color"] for name in values}, "0")
    figure.update_layout(height=_height(len(values)), showlegend=False)
    return figure.update_yaxes(autorange="reversed", ticksuffix="  ")


def _add(
    figure: go.Figure, values: Mapping[str, Sequence[float]], name: str, colours: Mapping[str, str], group: str
) -> None:
    """Bars lie, so that long names can be read; the dots of seeds stand on them."""
    there = {key: those for key, those in values.items() if those}
    figure.add_bar(
        y=list(there),
        x=[stats.mean(list(those)) for those in there.values()],
        name=name,
        orientation="h",
        marker={"color": [colours[key] for key in there], "opacity": 0.7},
        offsetgroup=group,
        hovertemplate="%{y}: %{x:.4f}<extra>mean</extra>",
    )
    dots = [(key, value) for key, those in there.items() for value in those]
    figure.add_scatter(
        y=[key for key, _ in dots],
        x=[value for _, value in dots],
        name=f"{name}, seeds",
        mode="markers",
        orientation="h",
        marker={"color": "#fff", "size": 7, "line": {"color": "#1c1c1c", "width": 1}},  # seen on any bar and page
        offsetgroup=group,
        showlegend=False,
        hovertemplate="%{y}: %{x:.4f}<extra>a seed</extra>",
    )


def _height(lines: int) -> int:
    return 120 + 26 * lines
