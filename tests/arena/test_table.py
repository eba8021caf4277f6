"""Tables of the arena, from stored runs and from rows made by hand."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.arena.made import (
    TASK,
    fail,
    finish,
    finish_all,
    names_of,
    one,
    pair_of,
    planned,
    reported,
    row,
    score,
    spec,
    table_of,
    tables_of,
    tabulate,
)
from whence import stats
from whence.arena.config import ArenaConfig
from whence.arena.instrument import ArenaTable, overall
from whence.arena.page import accuracy_by_length
from whence.arena.score import id_score, judge, mastered
from whence.arena.tuning import setting_of
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.store.runs import Store

FEW = {"test_lengths": 0}


def test_verdicts_of_rows(store: Store) -> None:
    scores = {
        "rope": [(1.0, 0.26), (1.0, 0.25)],
        "alibi": [(0.26, 0.9)],
        "t5": [(0.6, 0.6), (0.7, 0.7)],
        "none": [],
        "fire": [],
    }
    plan = planned(spec(*scores))
    finish_all(store, [run for run in plan if run.seed < len(scores[run.model.position_label])], scores)
    for run in plan:
        if run.model.position_label == "fire":
            fail(store, run, "it <b>broke</b>")
    rows = one(tabulate(plan, store)).rows
    assert [r.cell("id").verdict for r in rows] == ["solved", "at chance", "learning", "not run", "failed"]
    assert [r.cell("ood").verdict for r in rows] == ["at chance", "not learned", "not learned", "", ""]
    assert rows[1].to_json()["cells"]["ood"] == {"text": "", "verdict": "not learned"}, "without any number"
    assert rows[0].to_json()["cells"]["ood"]["verdict"] == "at chance"
    assert (rows[0].cell("gap").text, rows[0].cell("gap").mean) == ("74.5", pytest.approx(0.745))
    assert rows[0].to_json()["cells"]["gap"]["mean"] == pytest.approx(0.745)
    assert "gap" not in rows[1].cells, "nothing was there to be lost"


def test_verdicts_of_rows_made_by_hand() -> None:
    rows = judge(
        [
            row("rope", [1.0, 1.0], [0.26, 0.25]),
            row("alibi", [0.26], [0.9]),
            row("t5", [0.6, 0.7], [0.6, 0.7]),
            row("none", None),
            row("fire", None, failed=2),
        ]
    )
    assert [r.cell("id").verdict or r.state for r in rows] == ["solved", "at chance", "learning", "not run", "failed"]
    assert [r.cell("ood").verdict for r in rows] == ["at chance", "not learned", "not learned", "", ""]


def test_cells_that_are_not_shown_do_not_weaken_the_rest() -> None:
    """Beyond training is tested only where it is claimed: Holm must not count the others."""
    just = score({0: 0.305})
    assert 0.001 < just.p_value < 0.05 / 2
    alone = judge([row("rope", [0.305])])[0]
    crowded = judge([row("rope", [0.305], [0.9]), row("alibi", [0.26], [0.26])])[0]
    assert alone.cell("id").verdict == crowded.cell("id").verdict == "learning"


def test_a_failed_run_counts_as_a_loss(store: Store) -> None:
    """Of the encoding that failed, in its own pairs; a seed on which both fail does not count."""
    comparison = spec("rope", "alibi", "t5", seeds=9)
    for run in planned(comparison):
        if run.model.position_label != "t5" or run.seed != 6:
            finish(store, run, 0.9 if run.model.position_label == "rope" else 0.7 + run.seed / 1000)
        else:
            fail(store, run, "NaN")
    table = one(tabulate(planned(comparison), store))
    assert {(c.a, c.b): c.n for c in table.pairs("id")} == {
        ("rope", "alibi"): 9,
        ("rope", "t5"): 9,
        ("alibi", "t5"): 9,
    }
    assert pair_of(table, "id", "rope", "alibi").winner == "rope"
    lost = pair_of(table, "id", "alibi", "t5")
    assert (lost.wins, lost.losses, lost.failures) == (1, 0, 1), "equal but for the failure"


def test_whoever_fails_does_not_win(store: Store) -> None:
    comparison = spec("rope", "alibi", seeds=20, lengths={"test_lengths": 0})
    for run in planned(comparison):
        if run.model.position_label == "rope" and run.seed >= 6:
            fail(store, run, "NaN")
        else:
            finish(store, run, 0.9 if run.model.position_label == "rope" else 0.8)
    table = one(tabulate(planned(comparison), store))
    (pair,) = table.pairs("id")
    assert (pair.winner, pair.wins, pair.losses, pair.n) == (None, 6, 14, 20)


def test_only_divergence_counts_against_an_encoding(store: Store) -> None:
    """A killed process, a full disk or a damaged file is not its fault."""
    comparison = spec("rope", "alibi", seeds=6, lengths=FEW)
    plan = planned(comparison)
    finish_all(store, [run for run in plan if run.seed < 5], {"rope": [0.9] * 5, "alibi": [0.7] * 5})
    last = {run.model.position_label: run for run in plan if run.seed == 5}
    finish(store, last["rope"], 0.9)
    table = one(tabulate(plan, store, {last["alibi"].id: "crashed"}))
    (pair,) = table.pairs("id")
    assert (pair.n, pair.failures, pair.verdict) == (5, 0, "exploratory")


def test_survivors_do_not_solve_a_task(store: Store) -> None:
    comparison = spec("rope", "alibi", seeds=9, lengths=FEW)
    for run in planned(comparison):
        if run.model.position_label == "rope" and run.seed:
            fail(store, run, "NaN")
        else:
            finish(store, run, 1.0 if run.model.position_label == "rope" else 0.97)
    table = one(tabulate(planned(comparison), store))
    assert (table.rows[0].cell("id").verdict, mastered(table.rows[0])) == ("learning", False)
    (pair,) = table.pairs("id")
    assert pair.verdict == "undecided", "the mean of one seed contradicts nothing, and proves nothing"
    assert not any("rare failures" in line for line in table.findings)


def test_a_task_that_a_shortcut_solves_ranks_nobody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = spec("rope", "alibi", seeds=9)
    finish_all(store, planned(comparison), {"rope": [0.9] * 9, "alibi": [0.7] * 9})
    assert one(tabulate(planned(comparison), store)).comparisons
    monkeypatch.setattr(type(comparison.tasks[0].build()), "ranked", False)
    table = one(tabulate(planned(comparison), store))
    assert not table.comparisons
    assert f"A shortcut solves {TASK}, so its results rank no encoding." in table.findings
    assert "A shortcut solves" in table.conclusion, "before anything that is said of scores"


def test_sequences_seen_in_training_are_reported(store: Store) -> None:
    comparison = spec("rope", seeds=2)
    for run in planned(comparison):
        finish(store, run, 0.9, seen=50)
    assert (
        "25 % of the test sequences of the training length also occur in training."
        in one(tabulate(planned(comparison), store)).findings
    )


def test_learned_positions_are_not_listed_where_the_position_is_the_answer(store: Store) -> None:
    """Where a position has one answer only, its own baseline is 100 %, and nothing can be above it."""
    comparison = spec("rope", tasks=["own_position:places=8"], seeds=2, lengths={"train_length": 8, "test_lengths": []})
    for run in planned(comparison):
        finish(store, run, 0.7)
    table = one(tabulate(planned(comparison), store))
    assert table.rows[0].cell("id").verdict == "learning"
    assert not any("position" in line for line in table.findings)


def test_damage_is_not_called_a_failure(store: Store) -> None:
    comparison = spec("rope", "alibi", seeds=2)
    for run in planned(comparison):
        finish(store, run, 0.9)
    hurt = planned(comparison)[0]
    path = store.folder(hurt.id).path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    table = one(tabulate(planned(comparison), store))
    row = next(row for row in table.rows if row.name == hurt.model.position_label)
    assert (list(row.damaged), row.failed, len(row.finished)) == ([hurt.id], {}, 1)
    assert any(line.startswith(f"Damaged runs, excluded from averages: {row.name} (1)") for line in table.findings)


def test_the_highest_baseline_is_the_one_that_counts() -> None:
    of_two = replace(score({0: 0.56, 1: 0.57}), baselines={"uniform guess": 0.1, "a shortcut": 0.55})
    assert (of_two.baseline, of_two.baseline_name) == (0.55, "a shortcut")
    low, high = row("rope", [0.56, 0.57], baseline=0.1), row("alibi", [0.56, 0.57], baseline=0.55)
    assert [r.cell("id").verdict for r in judge([low, high])] == ["learning", "at chance"]


@pytest.mark.parametrize("design", ["fixed", "sequential"])
def test_whoever_is_at_chance_is_in_no_comparison(design: Any) -> None:
    """Many made-up tables, with seeds that differ wildly around the baseline."""
    chance = random.Random(0)
    ranked = left_out = 0
    for _ in range(60):
        rows = []
        for name in ("rope", "alibi", "t5", "none"):
            centre = chance.choice([0.25, 0.25, 0.27, 0.6, 0.97])
            beyond = chance.choice([0.2, 0.25, 0.5, 0.97])
            spread = chance.choice([0.005, 0.1])
            scores = [[min(1, max(0, chance.gauss(c, spread))) for _ in range(8)] for c in (centre, beyond)]
            rows.append(row(name, *scores))
        table = table_of(rows, design)
        for pair in table.comparisons:
            for name in (pair.a, pair.b):
                r = table.row(name)
                assert r.cell("id").verdict in ("learning", "solved")
                if pair.part == "ood":
                    assert mastered(r)
                    assert r.cell("ood").verdict in ("learning", "solved")
            ranked += 1
        left_out += sum(r.cell("id").verdict == "at chance" for r in table.rows)
    assert min(ranked, left_out) > 20


def test_a_failed_row_and_one_at_chance_leave_the_others_comparable() -> None:
    """The heading must not contradict a finding that ranks."""
    table = table_of(
        [
            row("rope", [0.9, 0.91, 0.92, 0.9, 0.91, 0.92, 0.9, 0.91]),
            row("alibi", [0.6] * 8),
            row("t5", [0.25, 0.26]),
            row("none", None, failed=3),
        ]
    )
    assert table.family == 6
    assert pair_of(table, "id", "rope", "alibi").winner == "rope"
    assert names_of(table.comparisons) == [("rope", "alibi")]
    told = " ".join(table.findings)
    assert "rope beats alibi" in told
    assert "t5 at chance, not ranked" in told
    assert "none (3)" in told
    assert table.seeds == 8
    assert "nothing is ranked" not in table.heading
    assert "exploratory" not in table.heading


def test_comparisons_use_the_seeds_that_both_have() -> None:
    mine = dict(zip(range(8), [0.9, 0.8, 0.7, 0.9, 0.8, 0.7, 0.9, 0.8], strict=True))
    theirs = {seed: value - 0.1 for seed, value in mine.items() if seed != 3} | {11: 0.3, 12: 0.3}
    rows = [row(name, list(s.values()), seeds=list(s)) for name, s in (("rope", mine), ("alibi", theirs))]
    designs: tuple[stats.TestDesign, ...] = ("fixed", "sequential")
    for design in designs:
        pair = pair_of(table_of(rows, design), "id", "rope", "alibi")
        assert pair.n == 7
        assert pair.difference == pytest.approx(0.1)
        assert (pair.wins, pair.losses) == (7, 0)
    strangers = [row("rope", [0.9, 0.9], seeds=[0, 1]), row("alibi", [0.6, 0.6], seeds=[2, 3])]
    assert not table_of(strangers).comparisons


@pytest.mark.parametrize("design", ["fixed", "sequential"])
def test_all_pairs_share_the_error(design: Any) -> None:
    """Also those that are not shown: which pairs are in the family must not depend on the scores."""
    scores = {
        "rope": [0.9, 0.91, 0.92, 0.93, 0.9, 0.91, 0.92, 0.93, 0.9],
        "alibi": [0.6] * 9,
        "none": [0.25, 0.24, 0.26, 0.25, 0.24, 0.26, 0.25, 0.24, 0.26],
        "t5": [0.26, 0.25, 0.25, 0.26, 0.25, 0.25, 0.26, 0.24, 0.25],
    }
    (shown,) = table_of([row(name, values) for name, values in scores.items()], design).comparisons
    assert (shown.part, shown.a, shown.b) == ("id", "rope", "alibi")
    by_seed = {name: dict(enumerate(values)) for name, values in scores.items()}
    every = [stats.pair(stats.ACCURACY, a, b, by_seed, part="id") for a, b in stats.all_pairs(scores)]
    assert shown == stats.compare(every, design=design)[0]
    (alone,) = stats.compare(every[:1], design=design)
    assert (alone.p, alone.e) != (shown.p, shown.e)


def test_few_seeds_decide_nothing(store: Store) -> None:
    plan = planned(spec("rope", "alibi", seeds=5))
    finish_all(store, plan, {"rope": [1.0] * 5, "alibi": [0.8] * 5})
    table = one(tabulate(plan, store))
    assert not table.decided
    assert {c.verdict for c in table.comparisons} == {"exploratory"}
    assert "exploratory" in table.heading
    assert not any(" beats " in line for line in table.findings)


def test_runs_are_grouped_by_setting_and_titles_name_what_varies(store: Store) -> None:
    plan = planned(spec(sweep="layers=1,2;lr=0.001,0.01"))
    tables = tabulate(plan, store)
    assert [t.title for t in tables] == [
        f"{TASK} · attention · layers={n} · lr={lr}" for n in (1, 2) for lr in (0.001, 0.01)
    ]
    assert all([r.name for r in t.rows] == ["rope", "alibi"] for t in tables)
    assert all(len(r.results) == 2 for t in tables for r in t.rows)
    ids = [result.run.id for t in tables for r in t.rows for result in r.results]
    assert sorted(ids) == sorted(run.id for run in plan)
    assert len({setting_of(t.planned.run) for t in tables}) == 4
    plain = tabulate(
        planned(spec(tasks=["copy", "reverse"], lengths={"train_length": None, "test_lengths": None})), store
    )
    assert [t.title for t in plain] == ["copy · attention", "reverse · attention"], "a task's own lengths are no sweep"
    lengths = tabulate(
        planned(spec("rope", tasks=["copy"], sweep="train_length=4,8", lengths={"test_lengths": 0})), store
    )
    assert [t.title for t in lengths] == ["copy · attention · train_length=4", "copy · attention · train_length=8"]
    options = tabulate(planned(spec("rope", sweep="k=1,2")), store)
    assert [str(t.planned.run.task) for t in options] == ["k_back_recall:k=1,symbols=4", "k_back_recall:k=2,symbols=4"]
    mixers = tabulate(planned(spec("learned", sweep="mixer=attention,mamba:d_state=4")), store)
    assert [t.title for t in mixers] == [f"{TASK} · attention", f"{TASK} · mamba:d_state=4"]


def test_an_encoding_and_its_transform_share_a_table(store: Store) -> None:
    table = one(tabulate(planned(spec("rope", "randomized:span=64+rope")), store))
    assert [r.name for r in table.rows] == ["rope", "randomized:span=64+rope"]
    assert [r.cell("id").verdict for r in table.rows] == ["not run", "not run"]
    assert table.seeds == 0
    assert table.caption == "Training length up to 8; OOD at 16", "no baseline before any score"


def test_failed_missing_and_corrupt_runs_enter_no_average(store: Store) -> None:
    plan = planned(spec("rope", "alibi", "t5", seeds=3))
    by_name = {(run.model.position_label, run.seed): run for run in plan}
    finish(store, by_name["rope", 0], 0.8)
    fail(store, by_name["rope", 1], "the loss is NaN")
    for seed, value in enumerate((0.5, 0.6, 0.7)):
        finish(store, by_name["alibi", seed], value)
    damaged = store.folder(by_name["alibi", 2].id).path / "status.json"
    damaged.write_bytes(damaged.read_bytes().replace(b'"seed":2', b'"seed":3'))
    torn = store.folder(by_name["alibi", 1].id).path / "metrics.jsonl"
    torn.write_bytes(torn.read_bytes().replace(b'"step":4', b'"step":5'))
    table = one(tabulate(plan, store, {by_name["t5", 0].id: "crashed", by_name["t5", 1].id: "busy"}))
    rope, alibi, t5 = table.rows
    assert (len(rope.finished), rope.cell("id").per_seed) == (1, {0: 0.8})
    assert rope.failed == {by_name["rope", 1].id: "the loss is NaN"}
    assert alibi.cell("id").per_seed == {0: 0.5}
    assert "checksum" in alibi.damaged[by_name["alibi", 2].id]
    assert "chain" in alibi.damaged[by_name["alibi", 1].id]
    assert (t5.cell("id").verdict, id_score(t5)) == ("failed", None)
    assert list(t5.failed) == [by_name["t5", 0].id]
    assert "process died" in t5.failed[by_name["t5", 0].id]
    assert "Failed runs, excluded from averages: rope (1), t5 (1)." in table.findings
    assert any(line.startswith("Damaged runs, excluded from averages: alibi (2)") for line in table.findings)


def test_tuning_chooses_on_validation_and_not_on_the_test(store: Store) -> None:
    comparison = spec("rope", "alibi", tune="lr=0.001,0.01")
    assert not {run.seed for run in comparison.tuning_runs()} & {run.seed for run in reported(comparison, store)}
    for run in comparison.tuning_runs():
        low = run.training.lr == 0.001
        good_on_validation = low if run.model.position_label == "rope" else not low
        finish(
            store,
            run,
            0.6 if good_on_validation else 0.9,  # the test disagrees
            0.5 if good_on_validation else 0.99,
            validation=0.8 if good_on_validation else 0.7,
        )
    for run in reported(comparison, store):
        finish(store, run, 0.6)
    table = one(tables_of(comparison, store))
    assert isinstance(table.planned, ArenaTable)
    assert [table.planned.chosen(name) for name in ("rope", "alibi")] == [{"lr": 0.001}, {"lr": 0.01}]
    assert [r.cell("chosen").text for r in table.rows] == ["lr=0.001", "lr=0.01"]
    for r in table.rows:
        assert r.cell("id").mean == pytest.approx(0.6, abs=0.001)
        assert len(r.results) == len(r.finished) == 2
        assert {result.run.training.lr for result in r.results} == {table.planned.chosen(r.name)["lr"]}
    assert "lr" not in table.title
    assert any(
        line.startswith("rope over the 2 settings tried: ID 60.0–90.0 %, OOD 50.0–99.0 %") for line in table.findings
    )


def test_a_winner_that_depends_on_the_settings_is_reported_so(store: Store) -> None:
    """Of the two rates tried, each encoding gets its own; at one of them the loser would have won."""
    comparison = spec("rope", "alibi", tune="lr=0.001,0.01", seeds=6, lengths={"test_lengths": 0})
    validation = {("rope", 0.001): 0.9, ("rope", 0.01): 0.6, ("alibi", 0.001): 0.7, ("alibi", 0.01): 0.8}
    for run in comparison.tuning_runs():
        finish(store, run, validation[run.model.position_label, run.training.lr])
    finish_all(store, reported(comparison, store), {"rope": [0.9] * 6, "alibi": [0.8] * 6})
    told = one(tables_of(comparison, store)).findings
    assert any("rope beats alibi in distribution by 10.0 points" in line for line in told)
    depends = (
        "This depends on the training settings: at lr=0.01, alibi is ahead by 20.0 points (mean of 2 tuning seeds)."
    )
    assert depends in told
    for run in comparison.tuning_runs():  # the loser's best is still below the winner's worst
        shutil.rmtree(store.folder(run.id).path)
        finish(store, run, 0.9 if run.model.position_label == "rope" else 0.6 + run.training.lr)
    assert not any("depends" in line for line in one(tables_of(comparison, store)).findings)


def test_an_unfinished_setting_cannot_win_by_its_lucky_seeds(store: Store) -> None:
    comparison = spec("rope", tune="lr=0.001,0.01")
    tuning = comparison.tuning_runs()
    for run in tuning:
        if run.training.lr == 0.001:
            finish(store, run, 0.6, validation=0.6)
        elif run.seed == tuning[0].seed:
            finish(store, run, 0.9, validation=0.9)
        else:
            fail(store, run, "diverged")
    assert {run.training.lr for run in reported(comparison, store)} == {0.001}


def test_claims_beyond_training_need_mastery_within(store: Store) -> None:
    plan = planned(spec("rope", "alibi", "t5", seeds=8))
    wiggle = [0.0, 0.002, 0.004, 0.001, 0.003, 0.002, 0.001, 0.0]
    finish_all(
        store,
        plan,
        {
            "rope": [(0.97 + w, 0.5 + w) for w in wiggle],
            "alibi": [(0.96 + w, 0.9 + w) for w in wiggle],
            "t5": [(0.9 + w, 1.0) for w in wiggle],
        },
    )
    table = one(tabulate(plan, store))
    assert names_of(table.pairs("ood")) == [("rope", "alibi")]
    assert pair_of(table, "ood", "rope", "alibi").winner == "alibi"
    assert len(table.pairs("id")) == 3
    t5 = table.rows[2]
    assert t5.cell("ood").verdict == "not learned"
    assert t5.to_json()["cells"]["ood"] == {"text": "", "verdict": "not learned"}
    assert "gap" not in t5.cells
    told = " ".join(table.findings)
    assert "alibi beats rope out of distribution" in told
    assert "t5 not evaluated (less than 95 % ID)" in told
    assert not any("t5" in line and "out of distribution" in line and "beats" in line for line in table.findings)


def test_scores_across_tasks(store: Store) -> None:
    tasks = [TASK, "long_range_match"]
    plan = planned(spec("rope", "alibi", "t5", tasks=tasks))
    given = {"rope": [0.9, 0.8], "alibi": [0.7, 0.6]}
    finish_all(store, [run for run in plan if run.model.position_label != "t5"], given)
    finish(store, next(run for run in plan if run.model.position_label == "t5"), 1.0)
    tables = tabulate(plan, store)
    found = overall(tables)
    assert list(found) == ["rope", "alibi"], "t5 lacks a task"
    for name, values in given.items():
        baselines = [max(t.planned.run.shortcut_baselines(8).values()) for t in tables]
        normal = sorted(
            (round(a * n) / n - f) / (1 - f) for f, n in zip(baselines, (1400, 200), strict=True) for a in values
        )
        value, count = found[name]
        assert count == 4
        assert value == pytest.approx(sum(normal[1:3]) / 2), "the middle half of four"
    assert overall(tables[:1]) == {}, "one task is no average over tasks"
    assert overall([]) == {}


def test_everything_can_be_written_as_json(store: Store) -> None:
    plan = planned(spec("rope", "alibi", "t5", seeds=7))
    others = [r for r in plan if r.model.position_label != "t5"]
    finish_all(store, others, {"rope": [1.0] * 7, "alibi": [(0.97, 0.3)] * 7})
    for run in plan:
        if run.model.position_label == "t5":
            fail(store, run, "NaN")
    for design in ("fixed", "sequential"):
        table = one(tabulate(plan, store, design=design))
        document = json.loads(json.dumps(table.to_json(), allow_nan=False))
        assert [r["name"] for r in document["rows"]] == ["rope", "alibi", "t5"]
        assert document["rows"][0]["seeds"] == list(range(7))
        cells = document["rows"][0]["cells"]
        assert (cells["id"]["by_length"], cells["ood"]["by_length"]) == ({"8": 1.0}, {"16": 1.0})
        assert document["rows"][1]["cells"]["ood"]["verdict"] == table.rows[1].cell("ood").verdict
        assert {c["part"] for c in document["comparisons"]} >= {"id"}
        assert all({"a", "b", "n", "difference", "verdict", "winner"} <= set(c) for c in document["comparisons"])


def test_a_table_of_real_runs(tiny: Callable[..., Any], store: Store) -> None:
    plan = planned(spec("rope", "shifted:reach=3+t5", tasks=[TASK, "marker_distance", "long_range_match"]))
    for run in plan[:-1]:
        execute(run, store, ExecutionOptions(threads=1))
    tables = tabulate(plan, store, {plan[-1].id: "crashed"})
    rows = [r for table in tables for r in table.rows]
    assert [len(r.finished) for r in rows] == [2, 2, 2, 2, 2, 1]
    assert "process died" in next(iter(rows[-1].failed.values()))
    for r in rows:
        found = id_score(r)
        assert found is not None
        assert len(found.per_seed) == len(r.finished)
        assert found.interval is not None
        assert found.interval[0] <= found.accuracy <= found.interval[1]
        assert set(accuracy_by_length(r)) == {8, 16}
        assert [len(result.evaluations) for result in r.finished] == [3] * len(r.finished)
    first, last = id_score(rows[0]), id_score(rows[-1])
    assert first is not None
    assert first.baseline == max(plan[0].shortcut_baselines(8).values())
    assert bool(first.exact)
    assert last is not None
    assert not last.exact, "one answer per sequence: nothing to be right as a whole"


def test_plans_are_paired_and_seeds_vary_slowest() -> None:
    comparison = spec("rope", "t5", tasks=[TASK, "marker_distance"])
    plan = planned(comparison)
    assert [run.seed for run in plan] == [0] * 4 + [1] * 4
    assert len({run.id for run in plan}) == 8
    more = planned(comparison.model_copy(update={"seeds": 3}))
    assert [run.id for run in more[:8]] == [run.id for run in plan]
    later = planned(comparison.model_copy(update={"seeds": 1, "first_seed": 2}))
    assert [run.id for run in later] == [run.id for run in more[8:]]
    mixed = ArenaConfig.read({"encodings": "randomized:span=64+rope:base=1e+5"})
    assert str(mixed.encodings[0]) == "randomized:span=64+rope:base=100000"
