"""`whence report …`: reports of stored runs and comparisons, and differences between two comparisons."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from whence.cli.instrument import presets_of
from whence.cli.options import Invocation, StoreOptions, Verb
from whence.cli.output import FAILED, print_json, print_lines, print_note, print_table, print_text, stderr
from whence.errors import UserError
from whence.experiments.options import metavar, positional
from whence.store.disk import CorruptFileError

if TYPE_CHECKING:
    from whence.experiments.change import Change
    from whence.experiments.export import Report
    from whence.experiments.table import Table
    from whence.store.runs import Store

REPORT = """Write a report of stored runs or of whole comparisons, or compare two comparisons

  whence report                                      list the stored comparisons
  whence report arena-3f2a1b --out report.html       a comparison, by the beginning of its name
  whence report source_encodings --out encodings.png a preset that has been run
  whence report 7c1e 88ab 90d2 --out runs.md         single runs, by the first digits of their ids
  whence report arena-3f2a1b arena-77b0c2 --diff     changes from the first to the second, paired by seed
  whence report source_encodings mine.yaml --diff    the same for presets and config files that have been run

The suffix of --out determines the format: .html a self-contained page, .png a screenshot of that page (requires
Chromium), .csv one line per run and length, .md the tables and findings as text, .json all results.

With --diff, tables with the same title and variants with the same name are compared over the seeds that both have.
Cells at chance are not ranked; their verdicts before and after are listed."""


class ReportOptions(StoreOptions):
    names: tuple[str, ...] = Field(
        default=(),
        description="comparisons, presets, config files or runs; default: list the comparisons",
        json_schema_extra=positional("NAME"),
    )
    out: str | None = Field(
        default=None,
        description="file to write; default: an HTML page in the reports of the store",
        json_schema_extra=metavar("FILE"),
    )
    diff: bool = Field(default=False, description="compare two comparisons")


def report_verb(instrument: str | None = None) -> Verb:
    """Of all instruments, or of one."""

    def run(invocation: Invocation) -> int:
        options = invocation.options(ReportOptions)
        store = options.open_store()
        if options.diff:
            return _diff(options, store)
        if options.names:
            return _write(options, store)
        if options.out:
            raise UserError(f"name: --out requires the name of a comparison or a run. '{invocation.prog}' lists them.")
        return _list(store, options.json_, instrument)

    own = REPORT if instrument is None else REPORT.replace("whence report", f"whence {instrument} report")
    return Verb(own, run)


VERBS = {"report": report_verb()}


def _write(options: ReportOptions, store: Store) -> int:
    from whence.experiments.export import FORMATS
    from whence.store import disk
    from whence.store.files import addressed_name

    ending = Path(options.out).suffix if options.out else ".html"
    if ending not in FORMATS:
        raise UserError(f"out: {options.out!r} has an unknown suffix. Allowed: {', '.join(FORMATS)}.")
    with stderr.status("Reading runs"):
        report, name = gather(options.names, store)
    if not report.finished:
        raise UserError(
            f"run: no run of {' '.join(options.names)} has finished in {store.root}. Run the comparison first."
        )
    if options.out and not os.path.isdir(Path(options.out).parent):
        raise UserError(f"out: {str(Path(options.out).parent)!r} is not a directory.")
    try:
        with stderr.status("Writing the report"):
            data = FORMATS[ending](report)
        path = Path(options.out) if options.out else store.reports / addressed_name(name, data, ending)
        (disk.write_output if options.out else disk.write_atomically)(path, data)
    except OSError as error:
        raise UserError(
            f"out: {options.out or str(store.reports)!r} cannot be written ({disk.reason_of(error)})."
        ) from None
    document = {"report": str(path), "tables": [table.to_json() for table in report.tables]}
    print_json(document) if options.json_ else print_text(str(path))
    damaged = [line for table in report.tables for row in table.rows for line in row.damaged.items()]
    for run, why in damaged:
        print_note(f"Damaged run {run}: {why}")
    return FAILED if damaged else 0


def gather(names: Sequence[str], store: Store) -> tuple[Report, str]:
    """One report on comparisons and runs of one instrument, and a name for it."""
    from whence.experiments.comparison import report_on
    from whence.experiments.export import report_on_runs
    from whence.instruments import instrument

    names, ids = list(dict.fromkeys(names)), store.ids()
    runs = [name for name in names if any(run_id.startswith(name) for run_id in ids)]
    parts: dict[str, Report] = {}
    if runs:
        report = report_on_runs([store.find(name).config() for name in runs], store, instrument)
        parts[report.instrument.name] = report
    for name in names:
        if name not in runs:
            chosen, config, path = find(name, store)
            is_preset = chosen.presets is not None and name in chosen.presets.names()
            named = ["--preset", name] if is_preset else ["--config", str(path.absolute())]
            parts[path.stem] = report_on(chosen, config, store, named)
    if len(parts) == 1:
        name, report = next(iter(parts.items()))
        return report, name
    first, *others = parts.values()
    if any(other.instrument is not first.instrument for other in others):
        raise UserError(
            "name: expected comparisons of one instrument, got several. Write a report for each instrument."
        )
    return _joined(parts), first.instrument.name


def _joined(parts: Mapping[str, Report]) -> Report:
    """All tables in one report. A title that occurs twice is followed by the name of its comparison."""
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
    from whence.instruments import instruments

    known = instruments()
    if Path(text).suffix in CONFIG_FILES and os.path.isfile(text):
        problems = []
        for each in known.values():  # the file does not name its instrument: take the first that accepts all fields
            try:
                return each, read_config(Path(text), each.config), Path(text)
            except UserError as problem:
                problems.append(problem)
        raise problems[0]
    name, path = find_config(text, store, {name: presets_of(each, each.config) for name, each in known.items()})
    return known[name], read_config(path, known[name].config), path


def _list(store: Store, as_json: bool, only: str | None) -> int:
    from whence.experiments.saved import read_config, saved_configs
    from whence.instruments import instruments

    comparisons = []
    for name, each in instruments().items():
        for path in saved_configs(name, store) if only in (None, name) else ():
            try:
                config = read_config(path, each.config)
                title = each.title(config)
            except (UserError, ValueError, OSError, CorruptFileError) as error:
                # written by another version, damaged, or about missing data: list the others
                print_note(f"Not listed: {path.stem}: {error}")
                continue
            document = config.model_dump(mode="json")
            comparisons.append({"name": path.stem, "instrument": name, "title": title, "config": document})
    if as_json:
        print_json(comparisons)
    elif comparisons:
        title, columns = f"Comparisons in {store.root}, latest of each instrument first", list(comparisons[0])[:3]
        print_lines(title, columns, [[one[column] for column in columns] for one in comparisons])
    else:
        print_text(f"No comparisons in {store.root}. Start one with 'whence {only or 'arena'} compare'.")
    return 0


# --- diff


def _diff(options: ReportOptions, store: Store) -> int:
    if len(options.names) != 2:
        raise UserError(f"name: --diff requires two comparisons, got {len(options.names)}. 'whence report' lists them.")
    if options.out:
        raise UserError("out: --diff prints its result and writes no file. Allowed: --diff or --out.")
    from whence.experiments.change import changes, config_changes
    from whence.experiments.comparison import tables_of
    from whence.stats import count, seeds_needed

    (instrument, before, one), (other, after, two) = (find(name, store) for name in options.names)
    if instrument is not other:
        raise UserError(f"name: expected two comparisons of one instrument, got {instrument.name} and {other.name}.")
    fields = config_changes(before, after)
    tables = tables_of(instrument, before, store), tables_of(instrument, after, store)
    cells = changes(instrument, tables[0], tables[1], store)
    if options.json_:
        print_json(
            {
                "before": one.stem,
                "after": two.stem,
                "config": {name: {"before": old, "after": new} for name, (old, new) in fields.items()},
                "cells": [change.to_json() for change in cells],
            }
        )
        return 0
    if fields:
        rows = [[name, _written(old), _written(new)] for name, (old, new) in fields.items()]
        print_table("Changes of the configuration", ["field", one.stem, two.stem], rows)
    else:
        print_text("The configurations are equal.")
    print_text()
    if not cells:
        print_text("No cell has finished runs in both comparisons, so nothing is compared.")
        return 0
    columns = ["table", "variant", "score", "before", "after", "difference", "seeds", "verdict"]
    print_table("Changes of the results", columns, [_cells(change) for change in cells])
    if paired := next((change.paired for change in cells if change.paired), None):
        needed = seeds_needed(paired.family)
        print_text(
            f"{count(paired.family, 'comparison')} in one family: a verdict needs at least {needed} paired seeds."
        )
    else:
        print_text(
            "Nothing is tested. A test requires cells above the shortcut baseline, all planned runs, and all seeds "
            "whose results were shown before."
        )
    return 0


def _cells(change: Change) -> list[str]:
    from whence.stats import short

    where = change.part.upper() if change.part in ("id", "ood") else change.part
    names, pair = [change.table, change.variant, where, change.before, change.after], change.paired
    if pair is None:
        return [*names, "", "", "not ranked"]
    span = f" {pair.metric.interval(*pair.interval)}" if pair.interval else ""
    size = pair.metric.display(pair.difference) + span
    verdict = f"{short(pair)}, " + (f"p = {pair.p:.3f}" if pair.p is not None else f"e = {pair.e:.3g}")
    return [*names, size, str(pair.n), verdict]


def _written(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
