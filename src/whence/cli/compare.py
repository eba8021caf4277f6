"""`whence compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.cli.options import Stored, parse_options
from whence.cli.output import print_json, print_table
from whence.errors import UserError
from whence.stats import short

if TYPE_CHECKING:
    from whence.experiments.change import Change

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
    from whence.cli.report import find
    from whence.experiments.change import changes, config_changes
    from whence.experiments.comparison import tables_of
    from whence.stats import seeds_needed
    from whence.store.runs import Store

    store = Store(options.store)
    if options.store:
        store.must_exist()
    (instrument, before, one), (other, after, two) = (find(word, store) for word in words)
    if instrument is not other:
        raise UserError("comparison: they are of different instruments. Allowed: two of one.", field="comparison")
    asked = config_changes(before, after)
    tables = tables_of(instrument, before, store), tables_of(instrument, after, store)
    found = changes(instrument, tables[0], tables[1], store)
    if options.json_:
        print_json(
            {
                "before": one.stem,
                "after": two.stem,
                "spec": {name: {"before": old, "after": new} for name, (old, new) in asked.items()},
                "cells": [change.to_json() for change in found],
            }
        )
        return 0
    if asked:
        rows = [[name, _shown(old), _shown(new)] for name, (old, new) in asked.items()]
        print_table("what was changed", ["field", one.stem, two.stem], rows)
    else:
        print("both ask for the same")
    print()
    if not found:
        print("no finished cell is in both: nothing to compare")
        return 0
    columns = ["table", "variant", "", "before", "after", "difference", "seeds", "verdict"]
    print_table("what changed with it", columns, [_cells(change) for change in found])
    paired = next((change.paired for change in found if change.paired), None)
    if paired:
        needed = seeds_needed(paired.family)
        print(f"{paired.family} comparisons share the error: a verdict needs at least {needed} paired seeds")
    else:
        print("nothing is tested: a test needs cells above the baseline, all planned runs, and all seeds shown before")
    return 0


def _cells(change: Change) -> list[str]:
    where = change.part.upper() if change.part in ("id", "ood") else change.part
    pair = change.paired
    if pair is None:
        return [change.table, change.variant, where, change.before, change.after, "", "", "not ranked"]
    span = f" {pair.metric.interval(*pair.interval)}" if pair.interval else ""
    size = pair.metric.display(pair.difference) + span
    return [
        change.table,
        change.variant,
        where,
        change.before,
        change.after,
        size,
        str(pair.n),
        f"{short(pair)}, " + (f"p = {pair.p:.3f}" if pair.p is not None else f"e = {pair.e:.3g}"),
    ]


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
