"""`whence compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.cli.options import Stored, parse_options
from whence.cli.output import print_json, print_table
from whence.errors import UserError
from whence.stats import short

if TYPE_CHECKING:
    from whence.arena.change import Change

DESCRIPTION = """What changed between two stored comparisons, paired by seed.

  whence compare arena-3f2a1b arena-77b0c2       (names: 'whence report' lists them)
  whence compare source_encodings mine.yaml         presets and config files that have been run

Tables of the same task and encodings of the same name are set against each other, over the seeds that both have.
A cell at chance is not ranked: its verdict before and after is all that is said."""


def main(arguments: list[str]) -> int:
    options, words = parse_options(
        Stored, arguments, prog="whence compare BEFORE AFTER", description=DESCRIPTION, words=True
    )
    if len(words) != 2:
        raise UserError("comparison: name two. See 'whence report' for those in the store.", field="comparison")
    from whence.arena.change import changes, spec_changes
    from whence.arena.kept import find, tables_of
    from whence.runs.store import Store
    from whence.stats import seeds_needed

    store = Store(options.store)
    if options.store:
        store.must_exist()
    before, after = (find(word, store) for word in words)
    tables = tables_of(before.spec, store), tables_of(after.spec, store)
    asked = spec_changes(before.spec, after.spec)
    found = changes(tables[0], tables[1], store)
    if options.json_:
        print_json(
            {
                "before": before.name,
                "after": after.name,
                "spec": {name: {"before": old, "after": new} for name, (old, new) in asked.items()},
                "cells": [change.to_json() for change in found],
            }
        )
        return 0
    if asked:
        rows = [[name, _shown(old), _shown(new)] for name, (old, new) in asked.items()]
        print_table("what was changed", ["field", before.name, after.name], rows)
    else:
        print("both ask for the same")
    print()
    if not found:
        print("no finished cell is in both: nothing to compare")
        return 0
    columns = ["task", "encoding", "", "before", "after", "difference", "seeds", "verdict"]
    print_table("what changed with it", columns, [_cells(change) for change in found])
    paired = next((change.paired for change in found if change.paired), None)
    if paired:
        needed = seeds_needed(paired.family)
        print(f"{paired.family} comparisons share the error: a verdict needs at least {needed} paired seeds")
    else:
        print("nothing is tested: a test needs cells above the baseline, all planned runs, and all seeds shown before")
    return 0


def _cells(change: Change) -> list[str]:
    where = "within" if change.part == "id" else "beyond"
    pair = change.paired
    if pair is None:
        return [change.table, change.encoding, where, change.before, change.after, "", "", "not ranked"]
    span = f" {pair.metric.interval(*pair.interval)}" if pair.interval else ""
    size = pair.metric.display(pair.difference) + span
    return [
        change.table,
        change.encoding,
        where,
        change.before,
        change.after,
        size,
        str(pair.n),
        f"{short(pair)}, " + (f"p = {pair.p:.3f}" if pair.p is not None else f"e = {pair.e:.3g}"),
    ]


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
