"""Figures of a comparison of autoencoders. A preset has the same colour and dash wherever it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from whence import stats
from whence.experiments.results import evaluations_of
from whence.experiments.table import Row, Table
from whence.features.run import PRESETS, FeaturesRun
from whence.report.figures import COLOURS, DASHES, figure_of, learning_curves
from whence.report.html import heading, html_table

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
    styles = {row.name: style(row.name) for row in rows}
    fvu = {row.name: [{e.step: e.metrics.curve for e in evaluations_of(r)} for r in row.finished] for row in rows}
    final = {row.name: list(final_losses(row).values()) for row in rows}
    figures = {"FVU by preset": _bars("FVU", {"mean": _values(rows, "fvu")})}
    recovered = {kind: _values(rows, f"{kind}_recovered") for kind in ("position_specific", "free")}
    if any(recovered["free"].values()):  # true directions are known
        label = "mean cosine with the true directions, matched one to one"
        figures["True directions recovered"] = _bars(label, recovered)
    figures |= {
        "Training loss": learning_curves({row.name: losses(row) for row in rows}, "loss", styles, log=True),
        "FVU on held-out activations": learning_curves(fvu, "FVU", styles, log=True),
        "Final training loss": _bars("training loss, penalties included", {"mean": final}),
    }
    if strict := by_strictness(rows):
        named = [replace(row, name=f"{STRICT[row.name]}: {row.name}") for row in strict]
        groups = {"with its mask": _values(named, "fvu"), "mask off": _values(named, "fvu_mask_off")}
        figures["FVU with and without the mask"] = _bars("FVU", groups)
    return figures


def losses(row: Row[FeaturesRun]) -> list[dict[int, float]]:
    """By run, the training loss by step."""
    return [{record.step: record.loss for record in result.losses} for result in row.finished]


def final_losses(row: Row[FeaturesRun]) -> dict[str, float]:
    """By run, the mean over the last steps: the loss of a single batch is noise."""
    return {
        result.run.id: stats.mean([loss for step, loss in of.items() if step >= (1 - FINAL_SHARE) * max(of)])
        for result, of in zip(row.finished, losses(row), strict=True)
        if of
    }


def _values(rows: Sequence[Row[FeaturesRun]], column: str) -> dict[str, list[float]]:
    """By row, a value per seed."""
    return {row.name: list(row.cell(column).per_seed.values()) for row in rows}


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
    title = "Hard and soft masks"
    return [heading(title, note, level=3), html_table(columns, cells, label=title)]


def _bars(label: str, groups: Mapping[str, Mapping[str, Sequence[float]]]) -> go.Figure:
    """Bars lie, so that long names can be read; the dots of seeds stand on them.

    groups: what stands beside each other; of a single one, every bar has the colour of its preset.
    """
    figure = figure_of(label, "")
    for place, (group, values) in enumerate(groups.items()):
        there = {name: those for name, those in values.items() if those}
        colours = [COLOURS[place] if len(groups) > 1 else style(name)["color"] for name in there]
        figure.add_bar(
            y=list(there),
            x=[stats.mean(those) for those in there.values()],
            name=group,
            orientation="h",
            marker={"color": colours, "opacity": 0.7},
            offsetgroup=str(place),
            hovertemplate="%{y}: %{x:.4f}<extra>mean</extra>",
        )
        figure.add_scatter(
            y=[name for name, those in there.items() for _ in those],
            x=[value for those in there.values() for value in those],
            name=f"{group}, seeds",
            mode="markers",
            orientation="h",
            marker={"color": "#fff", "size": 7, "line": {"color": "#1c1c1c", "width": 1}},  # seen on any bar and page
            offsetgroup=str(place),
            showlegend=False,
            hovertemplate="%{y}: %{x:.4f}<extra>a seed</extra>",
        )
    layout = {"barmode": "group", "scattermode": "group", "showlegend": len(groups) > 1}
    figure.update_layout(height=120 + 26 * sum(map(len, groups.values())), **layout)
    return figure.update_yaxes(autorange="reversed", ticksuffix="  ")
