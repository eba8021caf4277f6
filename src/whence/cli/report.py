"""`whence report`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from whence.cli.options import Stored, parse_options
from whence.cli.output import print_json, print_lines, stderr
from whence.errors import UserError

if TYPE_CHECKING:
    from whence.experiments.export import Report
    from whence.experiments.table import Table
    from whence.store.runs import Store

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
    from whence.experiments.export import WRITERS
    from whence.report.shell import write
    from whence.store.runs import Store

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
        report, name = gather(words, store)
    rows = [row for table in report.tables for row in table.rows]
    if not any(row.finished for row in rows):
        raise UserError(f"run: none of the runs of {' '.join(words)} has finished in {store.root}.", field="run")
    path = Path(options.out) if options.out else None
    if path and not path.parent.is_dir():
        raise UserError(f"out: {str(path.parent)!r} is not a directory.", field="out")
    with stderr.status("drawing the report"):
        try:
            if path:
                WRITERS[ending](report, path)
            else:
                path = write(name, report.html(), store.reports)
        except OSError as error:
            raise UserError(f"out: {str(path)!r} cannot be written ({error.strerror}).", field="out") from None
    document = {"report": str(path), "tables": [table.to_json() for table in report.tables]}
    print_json(document) if options.json_ else print(path)
    damaged = [f"{run}: {why}" for row in rows for run, why in row.damaged.items()]
    for line in damaged:
        stderr.print(f"damaged: {line}", markup=False, highlight=False, soft_wrap=True)
    return 1 if damaged else 0


def gather(words: list[str], store: Store) -> tuple[Report, str]:
    """What is named, as one report, and a name for it: comparisons of one instrument, or single runs of the arena."""
    names, ids = list(dict.fromkeys(words)), store.ids()
    runs = [word for word in names if any(run_id.startswith(word) for run_id in ids)]
    parts = {"arena": _single_runs(runs, store)} if runs else {}
    for word in names:
        if word not in runs:
            name, report = _comparison(word, store)
            parts[name] = report
    if len(parts) == 1:
        name, report = next(iter(parts.items()))
        return report, name
    first, *others = parts.values()
    if any(other.instrument is not first.instrument for other in others):
        raise UserError("run: they are of different instruments. Allowed: those of one.", field="run")
    return _joined(parts), first.instrument.name


def _comparison(text: str, store: Store) -> tuple[str, Report]:
    from whence.experiments.comparison import tables_of
    from whence.experiments.export import Report
    from whence.experiments.options import store_flag

    chosen, config, path = find(text, store)
    is_preset = chosen.presets is not None and text in chosen.presets.names()
    named = ["--preset", text] if is_preset else ["--config", str(path)]
    command = shlex.join(["whence", *chosen.command, *named, *store_flag(store)])
    report = Report(chosen, tables_of(chosen, config, store), config.model_dump(mode="json"), command, store)
    return path.stem, report


def _joined(parts: Mapping[str, Report]) -> Report:
    """All tables in one report. Where a title is taken, the name of the part follows it."""
    tables: list[Table[Any]] = []
    for name, report in parts.items():
        taken = {table.title for table in tables}
        for table in report.tables:
            title = f"{table.title} · {name}" if table.title in taken else table.title
            tables.append(replace(table, planned=replace(table.planned, title=title)))
    reports = list(parts.values())
    configs, commands = [report.config for report in reports], "\n".join(report.command for report in reports)
    return replace(reports[0], tables=tables, config=configs, command=commands)


def find(text: str, store: Store) -> tuple[Any, Any, Path]:
    """The instrument, the configuration and its file, of a preset, a saved comparison or a config file."""
    from whence.experiments.saved import CONFIG_FILES, find_config, read_config
    from whence.instruments import instrument, instruments

    if Path(text).suffix in CONFIG_FILES and Path(text).is_file():
        return _of_file(Path(text))
    kinds = {name: each.presets for name, each in instruments().items()}
    kind, path = find_config(text, store, kinds)
    return instrument(kind), read_config(path, instrument(kind).config), path


def _of_file(path: Path) -> tuple[Any, Any, Path]:
    """A config file does not name its instrument: the one that accepts all of its fields."""
    from whence.experiments.saved import read_config
    from whence.instruments import instruments

    problems = []
    for each in instruments().values():
        try:
            return each, read_config(path, each.config), path
        except UserError as problem:
            problems.append(problem)
    raise problems[0]


def _single_runs(words: list[str], store: Store) -> Report:
    from whence.arena.instrument import ARENA, tables_of_runs
    from whence.arena.run import ArenaRun
    from whence.experiments.export import Report
    from whence.experiments.options import store_flag
    from whence.experiments.table import tabulate
    from whence.training.config import load_run_config

    runs: dict[str, ArenaRun] = {}
    for word in words:
        run = load_run_config(store.find(word).spec_document())
        if not isinstance(run, ArenaRun):
            raise UserError(f"run: {word!r} is not a run of the arena.", field="run")
        runs[run.id] = run
    tables = tabulate(ARENA, list(tables_of_runs(list(runs.values()))), store, tested=False)
    command = shlex.join(["whence", "report", *runs, *store_flag(store)])
    return Report(ARENA, tables, [run.document() for run in runs.values()], command, store)


def _list(store: Store, as_json: bool) -> int:
    from whence.experiments.saved import read_config, saved_configs
    from whence.instruments import instruments

    found = []
    for name, each in instruments().items():
        for path in saved_configs(name, store):
            try:
                config = read_config(path, each.config)
            except UserError as error:  # of another version, or damaged: the others can still be listed
                stderr.print(f"left out: {error}", markup=False, highlight=False, soft_wrap=True)
                continue
            found.append((path.stem, name, each.title(config), config.model_dump(mode="json")))
    if as_json:
        print_json([dict(zip(("name", "instrument", "title", "config"), each, strict=True)) for each in found])
        return 0
    if not found:
        print(f"no comparisons in {store.root}; 'whence arena' makes some")
        return 0
    rows = [[name, kind, title] for name, kind, title, _ in found]
    print_lines(
        f"comparisons in {store.root}, the latest of each instrument first", ["name", "instrument", "title"], rows
    )
    return 0
