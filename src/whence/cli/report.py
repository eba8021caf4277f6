"""`whence report`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from whence.cli.options import Stored, elsewhere, parse_options
from whence.cli.output import print_json, print_lines, stderr
from whence.errors import UserError

if TYPE_CHECKING:
    from whence.arena.table import Table
    from whence.runs.store import Store

DESCRIPTION = """Make a report of stored runs or of whole comparisons.

  whence report                                      what there is to report on
  whence report arena-3f2a1b --out report.html       a comparison, by the beginning of its name
  whence report source_encodings --out encodings.png a preset that has been run
  whence report 7c1e 88ab 90d2 --out runs.md         single runs, by the first digits of their ids

The ending of --out says what it will be: .html one self-contained page · .png a picture of that page (needs Chromium)
· .csv one line per run and length · .md the tables and findings for a text · .json everything."""


class Reporting(Stored):
    """Where from, and where to."""

    out: str | None = Field(default=None, description="file to write; none: a page among the reports of the store")


def main(arguments: list[str]) -> int:
    options, words = parse_options(Reporting, arguments, prog="whence report RUN…", description=DESCRIPTION, words=True)
    from whence.report.export import WRITERS
    from whence.report.page import Page
    from whence.runs.store import Store

    store = Store(options.store)
    if options.store:
        store.must_exist()
    if not words and options.out:
        raise UserError("run: name what to report on. 'whence report' lists what there is.", field="run")
    if not words:
        return _list(store, options.json_)
    ending = Path(options.out).suffix if options.out else ".html"
    if ending not in WRITERS:
        raise UserError(f"out: {options.out!r} has an unknown ending. Allowed: {', '.join(WRITERS)}.", field="out")
    with stderr.status("reading runs"):
        tables, document, again = gather(words, store)
    if not any(row.finished for table in tables for row in table.rows):
        raise UserError(f"run: none of the runs of {' '.join(words)} has finished in {store.root}.", field="run")
    path = Path(options.out) if options.out else None
    if path and not path.parent.is_dir():
        raise UserError(f"out: {str(path.parent)!r} is not a directory.", field="out")
    with stderr.status("drawing the report"):
        page = Page.of(tables, document, again, store)
        try:
            if path:
                WRITERS[ending](page, path)
            else:
                path = page.write(store.reports)
        except OSError as error:
            raise UserError(f"out: {str(path)!r} cannot be written ({error.strerror}).", field="out") from None
    print_json({"report": str(path), "tables": [t.to_json() for t in tables]}) if options.json_ else print(path)
    damaged = [f"{run}: {why}" for table in tables for row in table.rows for run, why in row.damaged.items()]
    for line in damaged:
        stderr.print(f"damaged: {line}", markup=False, highlight=False, soft_wrap=True)
    return 1 if damaged else 0


def gather(words: list[str], store: Store) -> tuple[list[Table], Any, str]:
    """Tables of the runs and comparisons that are named, what they were made of, and how to make the report again."""
    from whence.arena.kept import PRESETS, find, tables_of
    from whence.arena.run import Run
    from whence.arena.table import tabulate
    from whence.runs.spec import load_run_spec

    runs: list[Run] = []
    again: list[str] = []
    documents: list[Any] = []
    tables: list[Table] = []
    ids = store.ids()
    for word in dict.fromkeys(words):
        if any(run_id.startswith(word) for run_id in ids):
            run = load_run_spec(store.find(word).spec_document())
            if not isinstance(run, Run):
                raise UserError(f"run: {word!r} is not a run of the arena.", field="run")
            runs.append(run)
        else:
            comparison = find(word, store)
            spec = comparison.spec
            named = ["--preset", word] if word in PRESETS.names() else ["--config", str(comparison.path)]
            again.append(shlex.join(["whence", "arena", *named, *elsewhere(store)]))
            documents.append(spec.model_dump(mode="json"))
            found = tables_of(spec, store)
            tables += _apart(found, tables, word)
    if runs:
        distinct = {run.id: run for run in runs}
        documents += [run.document() for run in distinct.values()]
        picked = tabulate(list(distinct.values()), store, tested=False)
        tables = _apart(picked, tables, "single runs") + tables
        again.append(shlex.join(["whence", "report", *distinct, *elsewhere(store)]))
    return tables, documents[0] if len(documents) == 1 else documents, "\n".join(again)


def _apart(found: list[Table], others: list[Table], name: str) -> list[Table]:
    """Tables of equal titles get a name behind it."""
    known = {table.title for table in others}
    return [replace(t, title=f"{t.title} · {name}") if t.title in known else t for t in found]


def _list(store: Store, as_json: bool) -> int:
    from whence.arena.kept import kept, read

    found = []
    for path in kept(store):
        try:
            spec = read(path)
        except UserError as error:  # of another version, or damaged: the others can still be listed
            stderr.print(f"left out: {error}", markup=False, highlight=False, soft_wrap=True)
            continue
        found.append(
            {
                "name": path.stem,
                "tasks": [str(task) for task in spec.tasks],
                "encodings": [str(encoding) for encoding in spec.encodings],
                "mixer": str(spec.model.mixer),
                "seeds": spec.seeds,
                "sweep": spec.sweep,
            }
        )
    if as_json:
        print_json(found)
        return 0
    if not found:
        print(f"no comparisons in {store.root}; 'whence arena' makes some")
        return 0
    print_lines(
        f"comparisons in {store.root}, the latest first",
        ["name", "tasks", "encodings", "mixer", "seeds", "sweep"],
        [
            [c["name"], " ".join(c["tasks"]), " ".join(c["encodings"]), c["mixer"], str(c["seeds"]), c["sweep"]]
            for c in found
        ],
    )
    return 0
