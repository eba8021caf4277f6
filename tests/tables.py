"""Tables of any instrument, made of results that no store holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go

from whence.experiments.instrument import Instrument
from whence.experiments.table import PlannedTable, Row, Table
from whence.store.runs import Store


def untested(instrument: Instrument[Any, Any], title: str, rows: Sequence[Row[Any]]) -> Table[Any]:
    """With cells and words, and without verdicts on differences."""
    planned: PlannedTable[Any] = PlannedTable(title, {row.name: [r.run for r in row.results] for row in rows}, (), ())
    filled = tuple(instrument.rows(planned, rows, Store("nowhere")))
    table = Table(planned, tuple(instrument.columns(planned, filled)), filled)
    table = replace(table, caption=instrument.caption(table))
    return replace(table, findings=tuple(instrument.findings(table)))


def traces(figure: go.Figure) -> list[Any]:
    """What a figure draws. Plotly does not declare its type."""
    drawn: Any = figure
    return list(drawn.data)
