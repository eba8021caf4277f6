"""Seeds until decided: who is asked to run again, and when it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.arena.made import TASK, fail, finish, finish_all, spec
from tests.conftest import TINY_FLAGS
from whence.arena.decide import more_runs
from whence.arena.kept import stored_runs, tables_of
from whence.arena.ranking import Inference
from whence.arena.table import tabulate
from whence.cli import run
from whence.runs.store import Store

CLEAR, CLOSE = [0.9 + s / 1000 for s in range(9)], [0.9 + (-1) ** s / 20 for s in range(9)]


def asked(comparison: Any, store: Store, seed: int) -> list[tuple[str, int]]:
    tables = tables_of(comparison.model_copy(update={"until_decided": True}), store)
    return [(r.model.contender, r.seed) for r in more_runs(comparison, tables, store, seed)]


def test_only_what_is_undecided_asks_for_more(store: Store) -> None:
    comparison = spec("rope", "t5", "alibi", seeds=9, lengths={"test_lengths": 0})
    finish_all(store, comparison.plan(), {"rope": CLEAR, "t5": CLOSE, "alibi": [0.7] * 9})
    (table,) = tabulate(comparison.plan(), store, inference=Inference("sequential"))
    open_pairs = [names for names, c in table.comparisons["id"].items() if not c.decided]
    assert open_pairs == [("rope", "t5")]
    assert asked(comparison, store, 9) == [("rope", 9), ("t5", 9)]


def test_nothing_is_asked_when_all_is_decided(store: Store) -> None:
    comparison = spec("rope", "alibi", seeds=9, lengths={"test_lengths": 0})
    finish_all(store, comparison.plan(), {"rope": CLEAR, "alibi": [0.7] * 9})
    assert asked(comparison, store, 9) == []


def test_who_is_at_chance_or_failed_asks_for_nothing(store: Store) -> None:
    comparison = spec("rope", "alibi", "t5", "none", seeds=2, lengths={"test_lengths": 0})
    plan = comparison.plan()
    finish_all(
        store,
        [r for r in plan if r.model.contender != "none"],
        {"rope": [0.9, 0.92], "alibi": [0.91, 0.9], "t5": [0.2, 0.3]},
    )
    for r in plan:
        if r.model.contender == "none":
            fail(store, r, "NaN")
    assert asked(comparison, store, 2) == [("rope", 2), ("alibi", 2)]


def test_a_tie_beyond_training_is_waited_for_too(store: Store) -> None:
    comparison = spec("rope", "alibi", seeds=9)
    within = [(0.99 if s % 2 else 1.0, 0.5 + (s % 3) / 10) for s in range(9)]
    finish_all(store, comparison.plan(), {"rope": within, "alibi": [(a, 0.6) for a, _ in within]})
    (table,) = tabulate(comparison.plan(), store, inference=Inference("sequential"))
    assert table.comparisons["id"]["rope", "alibi"].verdict == "tied"
    assert table.comparisons["ood"]["rope", "alibi"].verdict == "undecided"
    assert asked(comparison, store, 9) == [("rope", 9), ("alibi", 9)]


def test_each_table_asks_for_itself(store: Store) -> None:
    """In a sweep, and with the values that tuning chose."""
    comparison = spec("rope", "alibi", seeds=9, sweep="layers=1,2", tune="lr=0.001,0.01", lengths={"test_lengths": 0})
    best = {"rope": 0.01, "alibi": 0.001}
    for r in comparison.tuning_runs():
        finish(store, r, 0.9 if r.training.lr == best[r.model.contender] else 0.8)
    plan = stored_runs(comparison, store)
    for layers, alibi in ((1, [0.7] * 9), (2, CLOSE)):
        finish_all(store, [r for r in plan if r.model.layers == layers], {"rope": CLEAR, "alibi": alibi})
    more = more_runs(comparison, tables_of(comparison.model_copy(update={"until_decided": True}), store), store, 9)
    assert {(r.model.layers, r.training.lr, r.model.contender, r.seed) for r in more} == {
        (2, lr, name, 9) for name, lr in best.items()
    }
    assert not {r.id for r in more} & {r.id for r in plan}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WHENCE_STORE", raising=False)
    return tmp_path


ARENA = ["arena", "--tasks", TASK, *TINY_FLAGS, "--test-lengths", "0", "--lr", "0.01", "--until-decided"]


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("here", "in_process")
def test_a_clear_difference_ends_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Short training: one encoding is far ahead of the other, on every seed."""
    arguments = [*ARENA, "--encodings", "rope", "t5", "--steps", "60", "--seeds", "3", "--max-seeds", "14"]
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
    assert "decided: every comparison" in capsys.readouterr().out
    now = {path: path.stat().st_mtime_ns for path in Path("whence-runs/runs").rglob("metrics.jsonl")}
    assert now == stamps, "something ran twice"
    name = Path(found["again"].split("--config ")[1]).stem
    assert document(["report", name], capsys)["tables"] == found["tables"], "a report knows the added seeds"


@pytest.mark.usefixtures("here", "in_process")
def test_a_budget_that_is_spent_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*ARENA, "--encodings", "rope", "rope:base=9999", "--steps", "40", "--seeds", "2", "--max-seeds", "3"]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert "the budget is spent (3 seeds" in printed
    assert "1 comparisons have no verdict yet" in printed
    assert " beats " not in printed
    assert len(list(Path("whence-runs/runs").iterdir())) == 6
