"""Comparison of individual runs: their scores, the differences of their configurations, their learning curves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from whence.formatting import is_share, labelled, scored
from whence.report.figures import learning_curves, line_style, style_at
from whence.report.html import badge, heading, html_table, swatch
from whence.report.shell import plot, regenerate, shell
from whence.store.disk import CorruptFileError
from whence.store.files import flat
from whence.store.records import EvaluationRecord, RunStatus
from whence.store.runs import Store

MOST = 12
"""Maximum number of runs side by side."""


@dataclass(frozen=True)
class ComparedRun:
    """One of the compared runs."""

    id: str
    status: RunStatus
    config: Mapping[str, Any]
    evaluations: Sequence[EvaluationRecord]
    style: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.status.title} · seed {self.status.seed} · {self.id[:6]}"


def beside(store: Store, ids: Iterable[str]) -> tuple[list[ComparedRun], dict[str, str]]:
    """The readable runs, and the reasons why others are not readable, by id."""
    compared: list[ComparedRun] = []
    unreadable: dict[str, str] = {}
    for place, run_id in enumerate(ids):
        folder = store.folder(run_id)
        try:
            status, spec, evaluations = folder.status(), folder.config_document(), folder.evaluations()
            encoding = status.labels.get("encoding")  # an encoding has the same colour in all figures
            style = style_at(place) if encoding is None else line_style(encoding)
            compared.append(ComparedRun(run_id, status, spec, evaluations, style))
        except (OSError, CorruptFileError) as damage:
            unreadable[run_id] = str(damage)
    return compared, unreadable


def scored_by(runs: Sequence[ComparedRun]) -> list[str]:
    """Names of the scores of any of the runs."""
    return list(dict.fromkeys(name for run in runs for name in run.status.headline))


def differences(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """By dotted name, the configuration fields in which the runs differ."""
    flats = [flat(run.config) for run in runs]
    names = dict.fromkeys(name for one in flats for name in one)
    texts = {name: [json.dumps(one[name]) if name in one else "–" for one in flats] for name in names}
    return {name: values for name, values in texts.items() if len(set(values)) > 1}


def side_by_side(runs: Sequence[ComparedRun]) -> Markup:
    """A table with one column per run: state, scores, and configuration fields in which the runs differ."""
    about = Markup("{}{}<br><span class=note>seed {} · {}</span>")
    head = [about.format(swatch(run.style), run.status.title, run.status.seed, run.id) for run in runs]
    lines: list[list[str]] = [
        ["state", *(badge(run.status.state) for run in runs)],
        ["step", *(f"{run.status.step:,} of {run.status.steps:,}" for run in runs)],
        *([labelled(name), *(_score(run.status.headline, name) for run in runs)] for name in scored_by(runs)),
        ["time", *(f"{run.status.seconds:.0f} s" for run in runs)],
        *([name, *values] for name, values in differences(runs).items()),
    ]
    return html_table(["", *head], lines, label="Runs side by side", row_headers=True)


def _score(headline: Mapping[str, float], name: str) -> str:
    return scored(name, headline[name]) if name in headline else "–"


def curves(runs: Sequence[ComparedRun], name: str) -> go.Figure:
    """One score by training step, a line per run."""
    scale = 100 if is_share(name) else 1
    curves = {
        run.name: [{e.step: scale * e.headline[name] for e in run.evaluations if name in e.headline}] for run in runs
    }
    return learning_curves(curves, labelled(name), {run.name: run.style for run in runs}, markers=True)


def runs_page(runs: Sequence[ComparedRun], command: str) -> bytes:
    title = f"whence: {len(runs)} run{'s' * (len(runs) != 1)}"
    parts = [heading(title, level=1), side_by_side(runs)]
    for name in scored_by(runs):
        parts += [heading(name), plot(curves(runs, name))]
    return shell(title, [*parts, *regenerate(command, {run.id: run.config for run in runs})])
