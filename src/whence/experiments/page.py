"""The report of a comparison: findings, tables, figures, the configuration, and the command that makes it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from markupsafe import Markup

from whence.experiments.instrument import Instrument
from whence.experiments.table import Column, Row, Table
from whence.report.badges import badges
from whence.report.figures import swatch_of
from whence.report.shell import plot, regenerate, shell
from whence.report.tables import bullets, html_table
from whence.store.files import digest
from whence.store.runs import Store
from whence.training.config import RunConfig

R = TypeVar("R", bound=RunConfig)


def comparison_page(
    instrument: Instrument[Any, R], tables: Sequence[Table[R]], config: Any, command: str, store: Store
) -> bytes:
    """One self-contained HTML file."""
    title = page_title(instrument, tables)
    sections = instrument.sections(tables, store)
    parts: list[str] = [Markup("<h1>{}</h1>").format(title), *summary_html(instrument, tables)]
    drawn = 0
    for table in tables:
        parts += [Markup("<h2>{}</h2><p class=note>{}</p>").format(table.title, table.heading)]
        parts += [bullets(table.findings), table_html(instrument, table)]
        for name, figure in instrument.figures(table).items():
            key = digest(table.title + name)[:8]
            parts += [Markup("<h3>{}</h3>").format(name), plot(figure, key, with_script=drawn == 0)]
            drawn += 1
        parts += [*sections.get(table.title, ()), lost_html(table), _runs(table)]
    return shell(title, [*parts, *regenerate(command, config)])


def page_title(instrument: Instrument[Any, Any], tables: Sequence[Table[Any]]) -> str:
    return f"whence {instrument.name}: " + ", ".join(dict.fromkeys(table.title for table in tables))


def summary_html(instrument: Instrument[Any, R], tables: Sequence[Table[R]]) -> list[str]:
    summary = instrument.summary(tables)
    if summary is None:
        return []
    head = Markup("<h2>{}</h2><p class=note>{}</p>").format(summary.title, summary.note)
    return [head, html_table(summary.columns, summary.rows, label=summary.title)]


def table_html(instrument: Instrument[Any, R], table: Table[R]) -> Markup:
    """The table itself. Verdicts are badges; where a column has a span, every seed is a dot on a strip."""
    columns = table.filled_columns
    styles = {row.name: instrument.style(table, row.name) for row in table.rows}
    rows = [
        [
            Markup(swatch_of(styles[row.name]) if styles[row.name] else "") + row.name,
            row.dots,
            *(_cell(row, column) + _strip(row, column, styles[row.name].get("color", "#888")) for column in columns),
        ]
        for row in table.rows
    ]
    caption = Markup("<p class=note>{}</p>").format(table.caption) if table.caption else ""
    return html_table(["", "seeds", *(c.title for c in columns)], rows, label=table.title) + caption


def _cell(row: Row[Any], column: Column) -> Markup:
    cell = row.cell(column.key)
    verdict = Markup(badges(cell.verdict.split(", ")))
    return Markup(" ").join(part for part in (cell.text, verdict) if part)


def _strip(row: Row[Any], column: Column, colour: str) -> Markup:
    """Every seed as a dot, the baseline as a line. HTML, because the app shows no SVG."""
    cell = row.cell(column.key)
    if not cell.per_seed or not cell.text or not column.span:
        return Markup("")
    low, high = column.span
    mark = cell.baseline_mark
    line = Markup('<b style="left:{:.1f}%"></b>').format(100 * (mark - low) / (high - low)) if mark is not None else ""
    dots = Markup("").join(
        Markup('<i style="left:{:.1f}%;top:50%;color:{};background:{}" title="seed {}: {:.4g}"></i>').format(
            100 * (value - low) / (high - low), colour, colour, seed, value
        )
        for seed, value in cell.per_seed.items()
    )
    numbers = ", ".join(f"{value:.4g}" for value in cell.per_seed.values())
    return Markup('<div class=seeds role=img aria-label="{}: {}">{}{}</div>').format(column.title, numbers, line, dots)


def lost_html(table: Table[Any]) -> Markup:
    """Why some runs have no results; empty if all have."""
    reasons = [
        f"{row.name}, {run}: {reason}" for row in table.rows for run, reason in {**row.failed, **row.damaged}.items()
    ]
    return Markup("<h3>Failed and damaged runs</h3>{}").format(bullets(reasons)) if reasons else Markup("")


def _runs(table: Table[Any]) -> str:
    lines = [
        Markup("{}: <code>{}</code>").format(row.name, " ".join(result.run.id for result in row.results))
        for row in table.rows
    ]
    return Markup("<details><summary>The runs of this table</summary><p>{}</p></details>").format(
        Markup("<br>").join(lines)
    )
