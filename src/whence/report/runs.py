"""Any runs side by side: what they came to, what tells them apart, how they learned."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from whence.formatting import is_share, labelled, scored
from whence.report.badges import badge
from whence.report.figures import COLOURS, DASHES, figure_of, line_style, swatch_of
from whence.report.shell import plot, regenerate, shell
from whence.store.files import CorruptFileError, flat
from whence.store.runs import Store

MOST = 12
"""Runs beside each other: what a screen has room for."""
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs that are looked at together."""

    id: str
    status: Mapping[str, Any]
    spec: Mapping[str, Any]
    evaluations: Sequence[Mapping[str, Any]]
    style: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.status['title']} · seed {self.status['seed']} · {self.id[:6]}"


def beside(store: Store, ids: Iterable[str]) -> tuple[list[ComparedRun], dict[str, str]]:
    """Those that can be read, and why others cannot, by id."""
    found: list[ComparedRun] = []
    unreadable: dict[str, str] = {}
    for place, run_id in enumerate(ids):
        folder = store.folder(run_id)
        try:
            status, spec, evaluations = folder.status(), folder.spec_document(), folder.evaluations()
            found.append(ComparedRun(run_id, status, spec, evaluations, _style(status, place)))
        except (OSError, CorruptFileError) as damage:
            unreadable[run_id] = str(damage)
    return found, unreadable


def _style(status: Mapping[str, Any], place: int) -> dict[str, str]:
    """An encoding has its own colour everywhere; what has none is told apart by its place."""
    encoding = status["labels"].get("encoding")
    if encoding is not None:
        return line_style(encoding)
    return {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[place // len(COLOURS) % len(DASHES)]}


def scores(runs: Sequence[ComparedRun]) -> list[str]:
    """Names of what any of them is scored by."""
    return list(dict.fromkeys(name for run in runs for name in run.status["headline"]))


def differences(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """By dotted name, the fields of their specifications in which they are not all alike."""
    flats = [flat(run.spec) for run in runs]
    names = dict.fromkeys(name for one in flats for name in one)
    told = {name: [json.dumps(one[name]) if name in one else "–" for one in flats] for name in names}
    return {name: values for name, values in told.items() if len(set(values)) > 1}


def side_by_side(runs: Sequence[ComparedRun]) -> str:
    """A column per run: its end, its scores, and what was asked for otherwise."""
    head = "".join(
        f"<th scope=col>{swatch_of(run.style)}{html.escape(run.status['title'])}"
        f"<br><span class=note>seed {html.escape(str(run.status['seed']))} · {run.id}</span>"
        for run in runs
    )
    lines = [("state", [badge(run.status["state"]) for run in runs])]
    lines += [("step", [f"{run.status['step']:,} of {run.status['steps']:,}" for run in runs])]
    lines += [(labelled(name), [_score(run, name) for run in runs]) for name in scores(runs)]
    lines += [("time", [f"{run.status['seconds']:.0f} s" for run in runs])]
    lines += [(name, [html.escape(value) for value in values]) for name, values in differences(runs).items()]
    body = "".join(
        f"<tr><th scope=row>{html.escape(name)}" + "".join(f"<td class=n>{cell}" for cell in cells) + "</tr>"
        for name, cells in lines
    )
    return f"<div class=scroll><table><tr><th>{head}</tr>{body}</table></div>"


def _score(run: ComparedRun, name: str) -> str:
    value = run.status["headline"].get(name)
    return "–" if value is None else scored(name, value)


def curves(runs: Sequence[ComparedRun], name: str) -> go.Figure:
    """One score over steps, a line per run."""
    share = is_share(name)
    figure = figure_of("training steps", labelled(name))
    for place, run in enumerate(runs):
        points = [
            (e["step"], e["metrics"]["headline"][name]) for e in run.evaluations if name in e["metrics"]["headline"]
        ]
        if points:
            figure.add_scatter(
                x=[step for step, _ in points],
                y=[100 * value if share else value for _, value in points],
                name=run.name,
                mode="lines+markers",
                line={**run.style},
                marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7},
                hovertemplate="step %{x}: %{y:.4g}",
            )
    # names of runs are long: below each other, under the figure
    return figure.update_layout(
        height=400 + 22 * len(runs), legend={"orientation": "v", "y": -0.2, "yanchor": "top", "x": 0}
    )


def runs_page(runs: Sequence[ComparedRun], again: str) -> bytes:
    title = f"whence: {len(runs)} run{'s' * (len(runs) != 1)}"
    parts = [f"<h1>{html.escape(title)}</h1>", side_by_side(runs)]
    for place, name in enumerate(scores(runs)):
        parts += [f"<h2>{html.escape(name)}</h2>", plot(curves(runs, name), f"runs{place}", place == 0)]
    return shell(title, [*parts, *regenerate(again, {run.id: run.spec for run in runs})])
