"""Figures of a comparison of autoencoders. A preset has the same colour and dash in all of them."""

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
    """Colour and dash of a preset. A control has the colour of its preset."""
    names = sorted(PRESETS.names(), key=lambda preset: (preset[0].isdigit(), preset))
    base = name.split(", ")[0]
    place = names.index(base) if base in names else len(names)
    dash = DASHES[-1] if base != name else DASHES[place // len(COLOURS) % (len(DASHES) - 1)]
    return {"color": COLOURS[place % len(COLOURS)], "dash": dash}


def score_figures(table: Table[FeaturesRun]) -> dict[str, go.Figure]:
    """Figures by heading; none before a run has finished."""
    rows = [row for row in table.rows if row.finished]
    if not rows:
        return {}
    styles = {row.name: style(row.name) for row in rows}
    fvu = {row.name: [{e.step: e.metrics.curve for e in evaluations_of(r)} for r in row.finished] for row in rows}
    final = {row.name: list(final_losses(row).values()) for row in rows}
    figures = {"Reconstruction by preset": _bars("FVU (lower is better)", {"mean": _values(rows, "fvu")})}
    recovered = {kind: _values(rows, f"{kind}_recovered") for kind in ("position_specific", "free")}
    if any(recovered["free"].values()):  # true directions are known
        label = "mean cosine with the true directions, matched one to one"
        figures["Recovery of true directions"] = _bars(label, recovered)
    figures |= {
        "Training loss": learning_curves({row.name: losses(row) for row in rows}, "loss", styles, log=True),
        "FVU on held-out activations": learning_curves(fvu, "FVU", styles, log=True),
        "Final training loss": _bars("training loss, penalties included", {"mean": final}),
    }
    if strict := by_strictness(rows):
        named = [replace(row, name=f"{STRICT[row.name]}: {row.name}") for row in strict]
        groups = {"with mask": _values(named, "fvu"), "mask off": _values(named, "fvu_mask_off")}
        figures["Reconstruction with and without the mask"] = _bars("FVU (lower is better)", groups)
    return figures


def losses(row: Row[FeaturesRun]) -> list[dict[int, float]]:
    """Training losses by step, one per run."""
    return [{record.step: record.loss for record in result.losses} for result in row.finished]


def final_losses(row: Row[FeaturesRun]) -> dict[str, float]:
    """Mean loss over the last steps by run, since the loss of a single batch is noisy."""
    return {
        result.run.id: stats.mean([loss for step, loss in of.items() if step >= (1 - FINAL_SHARE) * max(of)])
        for result, of in zip(row.finished, losses(row), strict=True)
        if of
    }


def _values(rows: Sequence[Row[FeaturesRun]], column: str) -> dict[str, list[float]]:
    """Values per seed, by row."""
    return {row.name: list(row.cell(column).per_seed.values()) for row in rows}


def by_strictness(rows: Sequence[Row[FeaturesRun]]) -> list[Row[FeaturesRun]]:
    """Presets that differ in the strictness of their mask, from none to hard; none if fewer than two have a result."""
    by_name = {row.name: row for row in rows if row.finished}
    there = [by_name[name] for name in STRICT if name in by_name]
    return there if len(there) > 1 else []


def strictness_section(rows: Sequence[Row[FeaturesRun]]) -> list[str]:
    """A table of them."""
    there = by_strictness(rows)
    if not there:
        return []
    columns = ["mask", "preset", *STRICT_COLUMNS.values()]
    cells = [[STRICT[row.name], row.name, *(row.cell(key).text for key in STRICT_COLUMNS)] for row in there]
    note = (
        "The same runs, in order of the strictness of their mask. FVU is comparable at a similar number of active "
        "features (L0). With the mask off, only what the features have learned remains."
    )
    title = "Hard and soft masks"
    return [heading(title, note, level=3), html_table(columns, cells, label=title)]


def _bars(label: str, groups: Mapping[str, Mapping[str, Sequence[float]]]) -> go.Figure:
    """Horizontal bars for means, with a dot for every seed.

    groups: bars that are drawn beside each other. With a single group, every bar has the colour of its preset.
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
            marker={
                "color": "#fff",
                "size": 7,
                "line": {"color": "#1c1c1c", "width": 1},
            },  # visible on any bar and page
            offsetgroup=str(place),
            showlegend=False,
            hovertemplate="%{y}: %{x:.4f}<extra>one seed</extra>",
        )
    layout = {"barmode": "group", "scattermode": "group", "showlegend": len(groups) > 1}
    figure.update_layout(height=120 + 26 * sum(map(len, groups.values())), **layout)
    return figure.update_yaxes(autorange="reversed", ticksuffix="  ")
