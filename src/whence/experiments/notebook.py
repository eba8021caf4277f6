"""Comparisons and their tables in a notebook: the tables of the report page, without its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from whence.experiments.page import LEAD, lost_html, summary_html, table_html
from whence.report.html import bullets, heading, render
from whence.report.notebook import fragment

if TYPE_CHECKING:
    from whence.experiments.comparison import ComparisonResult
    from whence.experiments.table import Table

COMMAND = "<p class=note>Report: <code>{{ report }}</code><br>Command: <code>{{ command }}</code></p>"


class NoColours:
    """In the place of an instrument: its variants have no colours."""

    def style(self, table: Table[Any], name: str) -> Mapping[str, str]:
        return {}


def result_fragment(result: ComparisonResult[Any]) -> str:
    parts: list[str] = [*summary_html(result.instrument, result.tables)]
    for table in result.tables:
        parts += _table_parts(result.instrument, table)
    parts.append(render(COMMAND, report=result.report or "none", command=result.command))
    return fragment(parts)


def table_fragment(table: Table[Any]) -> str:
    return fragment(_table_parts(NoColours(), table))


def _table_parts(instrument: Any, table: Table[Any]) -> list[str]:
    head = [heading(table.title, level=3), render(LEAD, conclusion=table.conclusion)]
    statistics = render("<p class=note>{{ heading }}.</p>", heading=table.heading)
    return [*head, table_html(instrument, table), bullets(table.findings), statistics, lost_html(table)]
