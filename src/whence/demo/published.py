"""Tables that were measured with many seeds, from `results/`, shown beside what the tour measures with few."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from whence.errors import UserError
from whence.experiments.export import PublishedResults
from whence.report.figures import line_style
from whence.report.html import badge, html_table, swatch

RESULTS = "results"


def published(name: str) -> dict[str, Any]:
    """A file of `results/`: in the project, or in the wheel, which contains the folder."""
    package = Path(str(resources.files("whence")))
    for folder in (package / RESULTS, package.parents[1] / RESULTS):
        if (folder / f"{name}.json").is_file():
            return PublishedResults.load(folder / f"{name}.json").model_dump()
    raise UserError(f"results: {name}.json is missing. Install whence again, or clone the project.")


def table_of(results: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The table of one task."""
    return next(table for table in results["tables"] if table["title"].split(" · ")[0] == task)


def cell(row: Mapping[str, Any], column: str) -> Markup:
    """Mean and interval with the verdict, as the table of a comparison shows them."""
    content = row["cells"].get(column)
    if content is None:
        return Markup("–")
    return Markup(" ").join(filter(None, [Markup.escape(content["text"]), badge(content.get("verdict", ""))]))


def side_by_side(parts: Mapping[str, Mapping[str, Any]], label: str) -> Markup:
    """Tables of the same task under several settings: for every encoding, ID and OOD accuracy under each.

    parts: tables by the name of their settings.
    """
    columns = ["", *(f"{part}, {name}" for name in parts for part in ("ID (%)", "OOD (%)"))]
    names = [row["name"] for row in next(iter(parts.values()))["rows"]]
    rows = {
        name: {key: each for key, table in parts.items() for each in table["rows"] if each["name"] == name}
        for name in names
    }
    lines = [
        [swatch(line_style(name)) + name, *(cell(row, column) for row in own.values() for column in ("id", "ood"))]
        for name, own in rows.items()
    ]
    return html_table(columns, lines, label=label, row_headers=True)
