"""Which comparisons share an error, and which test applies to results that were shown before."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import pytest

from tests.arena.made import finish_all, one, planned, spec, tables_of, tabulate
from whence import stats
from whence.arena.instrument import ARENA
from whence.errors import UserError
from whence.experiments.comparison import count_comparisons
from whence.store.runs import Store

FEW = {"test_lengths": 0}


def test_verdicts_wait_for_all_planned_runs(store: Store) -> None:
    """Whoever reads a table while it fills up may stop when it looks best."""
    comparison = spec("rope", "alibi", seeds=12, lengths=FEW)
    plan = planned(comparison)
    finish_all(store, [run for run in plan if run.seed < 10], {"rope": [0.9] * 10, "alibi": [0.7] * 10})
    table = one(tabulate(plan, store))
    assert (table.comparisons, table.family) == ((), 0)
    assert "verdicts are given when all planned runs have ended" in table.heading
    assert not any(" beats " in line for line in table.findings)
    stopped = one(tables_of(spec("rope", "alibi", seeds=10, lengths=FEW), store))
    assert (stopped.design, stopped.earlier) == ("sequential", 10), "these seeds were shown before"
    finish_all(store, [run for run in plan if run.seed >= 10], {"rope": [0.9] * 12, "alibi": [0.7] * 12})
    table = one(tabulate(plan, store))
    assert table.design == "sequential", "the plan was changed in between"


def test_an_interrupted_plan_keeps_its_test(store: Store) -> None:
    plan = planned(spec("rope", "alibi", seeds=8, lengths=FEW))
    for seeds in range(1, 9):
        finish_all(store, [run for run in plan if run.seed == seeds - 1], {"rope": [0.9], "alibi": [0.7]})
        table = one(tabulate(plan, store))
        assert bool(table.comparisons) == (seeds == 8)
    assert table.design == "fixed"
    assert len(list(store.reports.glob("look-*"))) == 1, "a look replaces those that it includes"


def test_extending_a_comparison_makes_the_test_sequential(store: Store) -> None:
    """Six seeds were shown; to add more because of what they showed is optional stopping."""
    few, short, long = (spec("rope", "alibi", seeds=n, lengths=FEW) for n in (3, 6, 8))
    finish_all(store, planned(long), {"rope": [0.9] * 8, "alibi": [0.7] * 8})
    tables_of(few, store)
    assert one(tables_of(short, store)).design == "fixed", "three seeds showed no verdict"
    assert one(tables_of(short, store)).design == "fixed", "to look again at the same is no new look"
    table = one(tables_of(long, store))
    assert (table.design, table.earlier) == ("sequential", 6)
    assert "results of 6 seeds were shown before" in table.heading
    for other in (short, spec("rope", "alibi", seeds=7, first_seed=1, lengths=FEW)):
        table = one(tables_of(other, store))
        assert not table.comparisons, "fewer seeds, or others, of the same runs"
        assert "8 seeds of these variants were shown before, and this table leaves some of them out" in table.heading


@pytest.mark.parametrize("changes", [{"lengths": {"test_sequences": 8}}, {"training": {"evaluations": 1}}])
def test_other_evaluations_of_the_same_training_are_the_same_variant(store: Store, changes: dict[str, Any]) -> None:
    before, after = spec("rope", "alibi", seeds=6, lengths=FEW), spec("rope", "alibi", seeds=7, lengths=FEW)
    other = spec("rope", "alibi", **{**changes, "seeds": 7, "lengths": {**FEW, **changes.get("lengths", {})}})
    for comparison in (before, other, after):
        missing = [run for run in planned(comparison) if not store.folder(run.id).path.exists()]
        finish_all(store, missing, {"rope": [0.9] * 7, "alibi": [0.7] * 7})
    tables_of(before, store)
    assert one(tables_of(other, store)).design == "sequential"


def test_a_sheet_stays_one_family(store: Store) -> None:
    sheet, tables = (
        spec("rope", "alibi", seeds=7, sweep="layers=1,2,3,4", lengths=FEW, family=family)
        for family in ("sheet", "table")
    )
    finish_all(store, planned(sheet), {"rope": [0.9] * 7, "alibi": [0.7] * 7})
    assert {(table.family, table.decided) for table in tables_of(sheet, store)} == {(4, False)}
    assert {(table.family, table.decided) for table in tables_of(tables, store)} == {(4, False)}


def test_asking_for_the_best_pair_alone_does_not_shrink_the_family(store: Store) -> None:
    names = ("rope", "alibi", "t5", "none")
    whole = spec(*names, seeds=6, lengths={"test_lengths": 0})
    finish_all(store, planned(whole), {name: [0.9 - 0.1 * i] * 6 for i, name in enumerate(names)})
    table = one(tables_of(whole, store))
    assert (table.family, table.decided) == (6, False), "six seeds cannot decide among six pairs"
    pair = spec("rope", "alibi", seeds=6, lengths={"test_lengths": 0})
    alone = one(tables_of(pair, store))
    assert (alone.family, alone.decided) == (6, False)
    glance = spec("t5", "none", "kerple", seeds=3, lengths={"test_lengths": 0})
    finish_all(store, [run for run in planned(glance) if run.model.position_label == "kerple"], {"kerple": [0.5] * 3})
    tables_of(glance, store)
    assert one(tables_of(spec("t5", "none", seeds=6, lengths={"test_lengths": 0}), store)).family == 8, (
        "a glance counts"
    )
    wider = spec(*names, "fire", seeds=6, lengths={"test_lengths": 0})
    finish_all(store, [run for run in planned(wider) if run.model.position_label == "fire"], {"fire": [0.5] * 6})
    assert one(tables_of(wider, store)).family == 12, "a wider family holds all that was shown"


def test_a_look_with_more_in_it_still_counts(store: Store) -> None:
    """One that was not read would be forgotten, and the next table tested as if it were the first."""
    short, long = (spec("rope", "alibi", seeds=n, lengths=FEW) for n in (6, 8))
    finish_all(store, planned(long), {"rope": [0.9] * 8, "alibi": [0.7] * 8})
    tables_of(short, store)
    (path,) = store.reports.glob("look-*")
    look = json.loads(path.read_text())
    shown = {name: [*reversed(seeds), seeds[0]] for name, seeds in look["shown"].items()}
    path.write_text(json.dumps({**look, "shown": shown, "comment": "by hand"}))
    assert one(tables_of(long, store)).design == "sequential"


def test_families(store: Store) -> None:
    """Four encodings, two parts: 12 pairs in a table, 6 against one control, 24 in a sheet of two tables."""
    names = ("rope", "alibi", "t5", "none")
    for changes, comparisons, needed in (
        ({}, 12, 9),
        ({"against": "none"}, 6, 8),
        ({"family": "sheet", "sweep": "layers=1,2"}, 24, 10),
        ({"lengths": {"test_lengths": 0}}, 6, 8),
    ):
        comparison = spec(*names, seeds=needed, **changes)
        assert count_comparisons(ARENA, comparison, store) == comparisons
        assert stats.seeds_needed(comparisons) == needed
        with tempfile.TemporaryDirectory() as folder:
            place = Store(folder)
            finish_all(
                place,
                planned(comparison),
                {n: [(0.96 + 0.01 * i, 0.5 + 0.1 * i)] * needed for i, n in enumerate(names)},
            )
            tables = tables_of(comparison, place)
            assert {table.family for table in tables} == {comparisons}
            assert all(c.winner for c in tables[0].pairs("ood"))
            if changes.get("against"):
                assert all(c.b == "none" for c in tables[0].comparisons)
    with pytest.raises(UserError, match="against: 'fire' is not among the encodings"):
        spec(*names, against="fire")
