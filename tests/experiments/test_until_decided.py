"""Seeds until decided: which runs are added, and when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.arena.made import TASK, fail, finish, finish_all, names_of, one, pair_of, planned, reported, spec, tabulate
from tests.calls import document
from tests.conftest import TINY_FLAGS
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ARENA
from whence.arena.run import ArenaRun
from whence.cli.main import run
from whence.experiments import comparison as comparisons
from whence.experiments.comparison import more_runs, run_comparison
from whence.store.runs import Store

CLEAR, CLOSE = [0.9 + s / 1000 for s in range(9)], [0.9 + (-1) ** s / 20 for s in range(9)]


def added(comparison: ArenaConfig, store: Store) -> list[ArenaRun]:
    return more_runs(ARENA, comparison.model_copy(update={"until_decided": True}), store, {})


def added_names(comparison: ArenaConfig, store: Store) -> list[tuple[str, int]]:
    return [(r.model.position_label, r.seed) for r in added(comparison, store)]


def test_only_open_comparisons_get_more_seeds(store: Store) -> None:
    comparison = spec("rope", "t5", "alibi", seeds=9, lengths={"test_lengths": 0})
    finish_all(store, planned(comparison), {"rope": CLEAR, "t5": CLOSE, "alibi": [0.7] * 9})
    table = one(tabulate(planned(comparison), store, design="sequential"))
    assert names_of([c for c in table.pairs("id") if not c.decided]) == [("rope", "t5")]
    assert added_names(comparison, store) == [("rope", 9), ("t5", 9)]


def test_nothing_is_added_when_all_is_decided(store: Store) -> None:
    comparison = spec("rope", "alibi", seeds=9, lengths={"test_lengths": 0})
    finish_all(store, planned(comparison), {"rope": CLEAR, "alibi": [0.7] * 9})
    assert added_names(comparison, store) == []


def test_encodings_that_failed_or_are_at_chance_get_no_more_seeds(store: Store) -> None:
    comparison = spec("rope", "alibi", "t5", "none", seeds=6, lengths={"test_lengths": 0})
    plan = planned(comparison)
    finish_all(
        store,
        [r for r in plan if r.model.position_label != "none"],
        {"rope": [0.9, 0.92] * 3, "alibi": [0.91, 0.9] * 3, "t5": [0.2, 0.3] * 3},
    )
    for r in plan:
        if r.model.position_label == "none":
            fail(store, r, "NaN")
    assert added_names(comparison, store) == [("rope", 6), ("alibi", 6)]


def test_an_open_comparison_out_of_distribution_is_enough(store: Store) -> None:
    comparison = spec("rope", "alibi", seeds=9)
    within = [(0.99 if s % 2 else 1.0, 0.5 + (s % 3) / 10) for s in range(9)]
    finish_all(store, planned(comparison), {"rope": within, "alibi": [(a, 0.6) for a, _ in within]})
    table = one(tabulate(planned(comparison), store, design="sequential"))
    assert pair_of(table, "id", "rope", "alibi").verdict == "tied"
    assert pair_of(table, "ood", "rope", "alibi").verdict == "undecided"
    assert added_names(comparison, store) == [("rope", 9), ("alibi", 9)]


def test_each_table_gets_its_own_seeds(store: Store) -> None:
    """In a sweep, and with the values that tuning chose."""
    comparison = spec("rope", "alibi", seeds=9, sweep="layers=1,2", tune="lr=0.001,0.01", lengths={"test_lengths": 0})
    best = {"rope": 0.01, "alibi": 0.001}
    for r in comparison.tuning_runs():
        finish(store, r, 0.9 if r.training.lr == best[r.model.position_label] else 0.8)
    plan = reported(comparison, store)
    for layers, alibi in ((1, [0.7] * 9), (2, CLOSE)):
        finish_all(store, [r for r in plan if r.model.layers == layers], {"rope": CLEAR, "alibi": alibi})
    more = added(comparison, store)
    assert {(r.model.layers, r.training.lr, r.model.position_label, r.seed) for r in more} == {
        (2, lr, name, 9) for name, lr in best.items()
    }
    assert not {r.id for r in more} & {r.id for r in plan}


def test_no_seed_is_added_beyond_the_budget(store: Store) -> None:
    comparison = spec("rope", "t5", seeds=9, max_seeds=10, lengths={"test_lengths": 0})
    finish_all(store, planned(comparison), {"rope": CLEAR, "t5": CLOSE})
    assert added_names(comparison, store) == [("rope", 9), ("t5", 9)]
    assert added_names(comparison.model_copy(update={"max_seeds": 9}), store) == []


def test_added_seeds_belong_to_the_comparison(store: Store) -> None:
    comparison = spec("rope", "t5", seeds=9, until_decided=True, lengths={"test_lengths": 0})
    finish_all(store, planned(comparison), {"rope": CLEAR, "t5": CLOSE})
    more = added(comparison, store)
    for r in more:
        finish(store, r, 0.9)
    assert [(r.model.position_label, r.seed) for r in reported(comparison, store)[-2:]] == [("rope", 9), ("t5", 9)]
    assert added_names(comparison, store) == [("rope", 10), ("t5", 10)]


def test_processes_that_die_at_once_are_not_started_forever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such runs leave nothing in the store from which their seed could be known."""
    comparison = spec("rope", "t5", seeds=9, until_decided=True, lengths={"test_lengths": 0})
    finish_all(store, planned(comparison), {"rope": CLEAR, "t5": CLOSE})
    monkeypatch.setattr(comparisons, "run_all", lambda runs, *arguments, **options: {r.id: "crashed" for r in runs})
    result = run_comparison(ARENA, comparison, store)
    assert [result.ends[r.id] for r in added(comparison, store)] == ["crashed"] * 2
    assert result.undecided == 1


COMMAND = ["arena", "compare", "--tasks", TASK, *TINY_FLAGS, "--test-lengths", "0", "--lr", "0.01", "--until-decided"]


@pytest.mark.usefixtures("here", "in_process")
def test_a_clear_difference_ends_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Short training: one encoding is far ahead of the other, on every seed."""
    arguments = [*COMMAND, "--encodings", "rope", "t5", "--steps", "60", "--seeds", "3", "--max-seeds", "14"]
    found = document([*arguments, "--test-sequences", "64"], capsys)
    (table,) = found["tables"]
    (pair,) = table["comparisons"]
    assert pair["winner"] in ("rope", "t5")
    assert 7 <= pair["decided_at"] == pair["n"] == table["seeds"] < 14, "it stops at the seed that decides"
    assert len(found["runs"]) == 2 * pair["n"]
    assert set(found["runs"].values()) == {"finished"}
    assert "valid after every seed" in table["heading"]

    stamps = {path: path.stat().st_mtime_ns for path in Path("whence-runs/runs").rglob("metrics.jsonl")}
    assert run([*arguments, "--test-sequences", "64"]) == 0
    assert "Every comparison of variants that can be ranked is decided." in capsys.readouterr().out
    now = {path: path.stat().st_mtime_ns for path in Path("whence-runs/runs").rglob("metrics.jsonl")}
    assert now == stamps, "something ran twice"
    assert found["name"] == Path(found["command"].split("--config ")[1]).stem
    assert document(["report", found["name"]], capsys)["tables"] == found["tables"], "a report has the added seeds"


@pytest.mark.usefixtures("here", "in_process")
def test_a_budget_that_is_spent_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*COMMAND, "--encodings", "rope", "rope:base=9999", "--steps", "40", "--seeds", "2", "--max-seeds", "3"]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert "1 comparison not decided within 3 seeds (--max-seeds)" in printed
    assert " beats " not in printed
    assert len(list(Path("whence-runs/runs").iterdir())) == 6
