"""The page of the tour: its template and style are beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from whence import stats
from whence.formatting import duration
from whence.report.html import render
from whence.report.shell import Script, shell
from whence.store.runs import Store
from whence.system import cores

if TYPE_CHECKING:
    from whence.demo.tour import Tour

TEMPLATE, STYLE = (Path(__file__).with_name(f"page.{kind}") for kind in ("html", "css"))


def tour_page(tour: Tour, store: Store) -> bytes:
    """One self-contained HTML file."""
    contents = [outcome.content for outcome in tour.outcomes if outcome.content]
    scripts = [part for content in contents for part in content.body if isinstance(part, Script)]
    runs = [store.folder(run).status() for content in contents for run in content.runs]
    made = (
        f"{len(runs)} runs, {duration(sum(run.seconds for run in runs))} of training on {stats.count(cores(), 'core')}"
    )
    page = render(
        TEMPLATE.read_text(),
        tour=tour,
        style=Markup(STYLE.read_text()),
        quick=tour.size == "quick",
        made=made,
        store=str(store.root),
    )
    return shell("whence: a tour", [page, *scripts])
