"""The report of a comparison: findings, tables, figures, the configuration, and the command that makes it again."""

from __future__ import annotations

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
<details><summary>The runs of this table</summary><p>
{% for row in rows %}
{{ row.name }}: <code>{{ row.results | map(attribute="run.id") | join(" ") }}</code>
{% if not loop.last %}<br>{% endif %}
{% endfor %}</p></details>"""


def comparison_page(
    instrument: Instrument[Any, R], tables: Sequence[Table[R]], config: Any, command: str, store: Store
) -> bytes:
    """One self-contained HTML file."""
    title = page_title(instrument, tables)
    sections = instrument.sections(tables, store)
    parts: list[str] = [heading(title, level=1), *summary_html(instrument, tables)]
    for table in tables:
        parts += [heading(table.title, table.heading)]
        parts += [bullets(table.findings), table_html(instrument, table)]
        for name, figure in instrument.figures(table).items():
            parts += [heading(name, level=3), plot(figure)]
        parts += [*sections.get(table.title, ()), lost_html(table), render(RUNS, rows=table.rows)]
    return shell(title, [*parts, *regenerate(command, config)])


def page_title(instrument: Instrument[Any, Any], tables: Sequence[Table[Any]]) -> str:
    return f"whence {instrument.name}: " + ", ".join(dict.fromkeys(table.title for table in tables))


def summary_html(instrument: Instrument[Any, R], tables: Sequence[Table[R]]) -> list[str]:
    summary = instrument.summary(tables)
    if summary is None:
        return []
    return [heading(summary.title, summary.note), html_table(summary.columns, summary.rows, label=summary.title)]


def table_html(instrument: Instrument[Any, R], table: Table[R]) -> Markup:
    """The table itself. Verdicts are badges; where a column has a span, every seed is a dot on a strip."""
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
    return html_table(["", "seeds", *(c.title for c in columns)], rows, label=table.title) + caption


def _cell(row: Row[Any], column: Column) -> Markup:
    cell = row.cell(column.key)
    verdict = badges(cell.verdict.split(", "))
    return Markup(" ").join(part for part in (cell.text, verdict) if part)


def _strip(row: Row[Any], column: Column, colour: str) -> Markup:
    """Every seed as a dot, the baseline as a line. HTML, because the app shows no SVG."""
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
    """Why some runs have no results; empty if all have."""
    reasons = [
        f"{row.name}, {run}: {reason}" for row in table.rows for run, reason in {**row.failed, **row.damaged}.items()
    ]
    return heading("Failed and damaged runs", level=3) + bullets(reasons) if reasons else Markup("")
