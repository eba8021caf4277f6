"""Every evaluation of many runs in one table, for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from whence.store.files import CorruptFileError, flat
from whence.store.runs import Store


def evaluated(store: Store, runs: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Exception]]:
    """A row per evaluation of these runs, given as `Store.summaries` gives them; and why others are left out, by id."""
    rows: list[dict[str, Any]] = []
    left_out: dict[str, Exception] = {}
    for run in runs:
        common = {"id": run["id"], "state": run["state"], **run["labels"], "seed": run.get("seed")}
        try:
            evaluations = store.folder(run["id"]).evaluations()
        except (OSError, CorruptFileError) as damage:
            left_out[run["id"]] = damage
            continue
        rows += [{**common, "step": e["step"], **flat(e["metrics"])} for e in evaluations]
    return rows, left_out


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """With a column for whatever any row has."""
    rows = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(column for row in rows for column in row)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
