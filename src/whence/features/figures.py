"""Figures of a comparison of autoencoders. A preset has the same colour and dash wherever it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from markupsafe import Markup

from whence import stats
from whence.experiments.results import evaluations_of
from whence.experiments.table import Row, Table
from whence.features.run import PRESETS, FeaturesRun
from whence.report.figures import COLOURS, DASHES, figure_of
from whence.report.html import html_table

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
STRICT_COLUMNS = {
    "fvu": "FVU",
    "l0": "L0",
    "fvu_mask_off": "FVU, mask off",
    "l0_mask_off": "L0, mask off",
    "position_specific": "position-specific",
    "retention": "retention",
}
FINAL_SHARE = 0.1
"""Share of the steps whose mean loss is the final one"""


def style(name: str) -> dict[str, str]:
    """By the place among all presets, baselines first; a control has the colour of what it is a control of."""
    names = sorted(PRESETS.names(), key=lambda preset: (preset[0].isdigit(), preset))
    base = name.split(", ")[0]
    place = names.index(base) if base in names else len(names)
    dash = DASHES[-1] if base != name else DASHES[place // len(COLOURS) % (len(DASHES) - 1)]
    return {"color": COLOURS[place % len(COLOURS)], "dash": dash}


def score_figures(table: Table[FeaturesRun]) -> dict[str, go.Figure]:
    """By heading; none where nothing has finished."""
    rows = [row for row in table.rows if row.finished]
    if not rows:
        return {}
    figures = {
        "FVU by preset": _bars({row.name: _values(row, "fvu") for row in rows}, "FVU"),
        "True directions recovered": _recovered(rows),
        "Training loss": _over_steps({row.name: losses(row) for row in rows}, "loss"),
        "FVU on held-out activations": _over_steps({row.name: held_out_fvu(row) for row in rows}, "FVU"),
        "Final training loss": _bars(
            {row.name: list(final_losses(row).values()) for row in rows}, "training loss, penalties included"
        ),
        "FVU with and without the mask": strict_bars(by_strictness(rows)),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def losses(row: Row[FeaturesRun]) -> dict[str, dict[int, float]]:
    """By run, the training loss by step."""
    return {r.run.id: {record.step: record.loss for record in r.losses} for r in row.finished}


def held_out_fvu(row: Row[FeaturesRun]) -> dict[str, dict[int, float]]:
    return {r.run.id: {e.step: e.metrics.curve for e in evaluations_of(r)} for r in row.finished}


def final_losses(row: Row[FeaturesRun]) -> dict[str, float]:
    """By run, the mean over the last steps: the loss of a single batch is noise."""
    return {
        run: stats.mean([loss for step, loss in of.items() if step >= (1 - FINAL_SHARE) * max(of)])
        for run, of in losses(row).items()
        if of
    }


def _values(row: Row[FeaturesRun], column: str) -> list[float]:
    return list(row.cell(column).per_seed.values())


def _recovered(rows: Sequence[Row[FeaturesRun]]) -> go.Figure | None:
    """Free and position-specific directions beside each other; none where the true directions are not known."""
    if not any(_values(row, "free_recovered") for row in rows):
        return None
    figure = figure_of("mean cosine with the true directions, matched one to one", "")
    for place, kind in enumerate(("position_specific", "free")):
        values = {row.name: _values(row, f"{kind}_recovered") for row in rows}
        _add(figure, values, kind, dict.fromkeys(values, COLOURS[place]), str(place))
    figure.update_layout(barmode="group", height=_height(2 * len(rows)), scattermode="group")
    return figure.update_yaxes(autorange="reversed", ticksuffix="  ")


def _over_steps(curves: Mapping[str, Mapping[str, Mapping[int, float]]], label: str) -> go.Figure:
    """The mean over runs of each preset, at the steps that all of them have."""
    figure = figure_of("step", f"{label}, mean over seeds")
    for name, runs in curves.items():
        those = list(runs.values())
        shared = sorted(set(those[0]).intersection(*those[1:])) if those else []
        mean = {step: stats.mean([curve[step] for curve in those]) for step in shared}
        figure.add_scatter(
            x=list(mean), y=list(mean.values()), name=name, mode="lines", line={**style(name), "width": 2}
        )
    figure.update_yaxes(type="log")
    # names of presets are long: below the figure, where a narrow page has room for them, too
    below = {"orientation": "h", "y": -0.18, "yanchor": "top", "font": {"size": 11}}
    return figure.update_layout(height=420 + 12 * len(curves), legend=below)


def by_strictness(rows: Sequence[Row[FeaturesRun]]) -> list[Row[FeaturesRun]]:
    """Those that differ in how strict their mask is, from none to hard; none where fewer than two have a result."""
    by_name = {row.name: row for row in rows if row.finished}
    there = [by_name[name] for name in STRICT if name in by_name]
    return there if len(there) > 1 else []


def strictness_section(rows: Sequence[Row[FeaturesRun]]) -> list[str]:
    """They, side by side."""
    there = by_strictness(rows)
    if not there:
        return []
    columns = ["mask", "preset", *STRICT_COLUMNS.values()]
    cells = [[STRICT[row.name], row.name, *(row.cell(key).text for key in STRICT_COLUMNS)] for row in there]
    note = (
        "The same runs, by how strict their mask is. FVU is comparable at a similar number of active features (L0). "
        "Mask off: how a dictionary does without its mask; what was learned, rather than imposed, stays."
    )
    return [
        Markup("<h3>Hard and soft masks</h3><p class=note>{}</p>").format(note),
        html_table(columns, cells, label="Hard and soft masks"),
    ]


def strict_bars(rows: Sequence[Row[FeaturesRun]]) -> go.Figure | None:
    """With their masks, and with the mask off."""
    if not rows:
        return None
    figure = figure_of("FVU", "")
    for place, (column, name) in enumerate((("fvu", "with its mask"), ("fvu_mask_off", "mask off"))):
        values = {f"{STRICT[row.name]}: {row.name}": _values(row, column) for row in rows}
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
