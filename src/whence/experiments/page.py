"""The report of a comparison: results, figures, tables, statistics, and the command that reproduces it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

from markupsafe import Markup

from whence.experiments.instrument import Instrument
from whence.experiments.table import Column, Row, Table
from whence.report.html import badges, bullets, heading, html_table, render, swatch
from whence.report.shell import plot, regenerate, shell
from whence.store.runs import Store
from whence.training.config import AnyRun

R = TypeVar("R", bound=AnyRun)
STRIP = """\
<div class=seeds role=img aria-label="{{ title }}: {{ values.values() | join(', ') }}">
{% if mark %}<b style="left:{{ mark }}%"></b>{% endif %}
{% for seed, value in values.items() %}
<i style="left:{{ places[seed] }}%;top:50%;color:{{ colour }};background:{{ colour }}"
 title="seed {{ seed }}: {{ value }}"></i>
{% endfor %}</div>"""
RUNS = """\
<details><summary>Runs of this table ({{ count }})</summary>
<ul class=runs>{% for row in rows %}
<li>{{ row.name }}, seeds {{ row.results | map(attribute="run.seed") | join(", ") }}:
<code>{{ row.results | map(attribute="run.id") | join(" ") }}</code>
{% endfor %}</ul></details>"""
CONTENTS = """\
<ul class=lead>{% for table in tables %}
<li><a href="#table-{{ loop.index }}">{{ table.title }}</a>: {{ table.conclusion }}
{% endfor %}</ul>"""
LEAD = "<p class=lead>{{ conclusion }}</p>"


def comparison_page(
    instrument: Instrument[Any, R], tables: Sequence[Table[R]], config: Any, command: str, store: Store
) -> bytes:
    """One self-contained HTML file: for every table the result, the figure, the table, and how it was obtained."""
    title, several = page_title(instrument, tables), len(tables) > 1
    parts: list[str] = [heading(title, level=1)]
    if several:
        parts += [render(CONTENTS, tables=tables), *summary_html(instrument, tables)]
    sections = instrument.sections(tables, store)
    for number, table in enumerate(tables, 1):
        if several:
            parts.append(heading(table.title, anchor=f"table-{number}"))
        parts += [render(LEAD, conclusion=table.conclusion)]
        parts += _result(instrument, table, sections.get(table.title, ()))
        parts += _evidence(instrument, table)
    return shell(title, [*parts, *regenerate(command, config)])


def _result(instrument: Instrument[Any, R], table: Table[R], sections: Sequence[str]) -> list[str]:
    """The first figure, the table, what it shows in words, and all other figures."""
    figures = [[heading(name, level=3), plot(figure)] for name, figure in instrument.figures(table).items()]
    first, others = figures[:1], figures[1:]
    return [
        *itertools.chain.from_iterable(first),
        table_html(instrument, table),
        bullets(table.findings),
        *itertools.chain.from_iterable(others),
        *sections,
    ]


def _evidence(instrument: Instrument[Any, R], table: Table[R]) -> list[str]:
    """Statistics, baselines, failures and runs."""
    runs = sum(len(row.results) for row in table.rows)
    statistics = Markup("<p>{}.</p>").format(table.heading)
    listed_runs = render(RUNS, rows=table.rows, count=runs)
    return [heading("How we know", level=3), statistics, *instrument.evidence(table), lost_html(table), listed_runs]


def page_title(instrument: Instrument[Any, Any], tables: Sequence[Table[Any]]) -> str:
    """The titles of the tables, or their number where there are many."""
    titles = list(dict.fromkeys(table.title for table in tables))
    return f"whence {instrument.name}: " + (", ".join(titles) if len(titles) < 4 else f"{len(titles)} tables")


def summary_html(instrument: Instrument[Any, R], tables: Sequence[Table[R]]) -> list[str]:
    summary = instrument.summary(tables)
    if summary is None:
        return []
    return [heading(summary.title, summary.note), html_table(summary.columns, summary.rows, label=summary.title)]


def table_html(instrument: Instrument[Any, R], table: Table[R]) -> Markup:
    """The table. Verdicts are badges; where a column has a span, every seed is a dot on a strip."""
    columns = table.filled_columns
    styles = {row.name: instrument.style(table, row.name) for row in table.rows}
    rows = [
        [
            swatch(styles[row.name]) + row.name,
            row.dots,
            *(_cell(row, column) + _strip(row, column, styles[row.name].get("color", "#888")) for column in columns),
        ]
        for row in table.rows
    ]
    caption = Markup("<p class=note>{}</p>").format(table.caption) if table.caption else ""
    titles = ["variant", "seeds", *(column.title for column in columns)]
    return html_table(titles, rows, label=table.title, row_headers=True, stack=True) + caption


def _cell(row: Row[Any], column: Column) -> Markup:
    cell = row.cell(column.key)
    verdict = badges(cell.verdict.split(", "))
    return Markup(" ").join(part for part in (cell.text, verdict) if part)


def _strip(row: Row[Any], column: Column, colour: str) -> Markup:
    """Every seed as a dot, the shortcut baseline as a line. HTML, because the app shows no SVG."""
    cell = row.cell(column.key)
    if not cell.per_seed or not cell.text or not column.span:
        return Markup("")
    low, high = column.span
    mark = cell.baseline_mark
    values = {seed: f"{value:.4g}" for seed, value in cell.per_seed.items()}

    def place(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.1f}"

    return render(
        STRIP,
        title=column.title,
        values=values,
        places={seed: place(value) for seed, value in cell.per_seed.items()},
        mark=None if mark is None else place(mark),
        colour=colour,
    )


def lost_html(table: Table[Any]) -> Markup:
    """The reasons of failed and damaged runs; empty if there are none."""
    reasons = [
        f"{row.name}, {run}: {reason}" for row in table.rows for run, reason in {**row.failed, **row.damaged}.items()
    ]
    return heading("Failed and damaged runs", level=4) + bullets(reasons) if reasons else Markup("")
