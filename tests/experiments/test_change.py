"""Two comparisons side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.arena.made import TASK, fail, finish, finish_all, planned, spec, tabulate
from tests.calls import document
from tests.conftest import TINY_FLAGS
from whence.arena.instrument import ARENA
from whence.cli.main import run
from whence.experiments.change import changes, config_changes, matched
from whence.experiments.saved import save_config, saved_configs
from whence.store.runs import Store


def test_what_was_changed_is_named_by_its_field() -> None:
    before = spec("rope", "alibi", training={"steps": 5})
    assert config_changes(before, before) == {}
    after = spec("rope", "t5", training={"steps": 40}, model={"mixer": "mamba:d_state=4"}, sweep="k=1,2")
    assert config_changes(before, after) == {
        "encodings": (["rope", "alibi"], ["rope", "t5"]),
        "sweep": ("", "k=1,2"),
        "model.mixer": ("attention", "mamba:d_state=4"),
        "training.steps": (5, 40),
    }


def test_cells_are_paired_by_seed(store: Store) -> None:
    """Seeds that only one of them has do not count."""
    before, after = spec("rope", seeds=8), spec("rope", seeds=8, first_seed=1, training={"steps": 9})
    old = {s: 0.70 + 0.02 * s for s in range(8)}
    new = {s: 0.80 + 0.02 * s for s in range(1, 8)} | {8: 0.0}
    for r in planned(before):
        finish(store, r, old[r.seed])
    for r in planned(after):
        finish(store, r, new[r.seed])
    (change,) = changes(ARENA, *(tabulate(planned(c), store) for c in (before, after)), store)[:1]
    assert change.paired is not None
    assert change.paired.n == 7
    assert change.paired.difference == pytest.approx(0.1, abs=1e-3)
    assert (change.paired.wins, change.paired.winner) == (7, "after")


def test_a_cell_at_chance_is_not_ranked_and_what_only_one_has_is_left_out(store: Store) -> None:
    before, after = spec("rope", "alibi", seeds=7), spec("rope", "t5", seeds=7, training={"steps": 9})
    finish_all(store, planned(before), {"rope": [0.3] * 7, "alibi": [0.9] * 7})
    finish_all(store, planned(after), {"rope": [0.9] * 7, "t5": [0.9] * 7})
    found = changes(ARENA, *(tabulate(planned(c), store) for c in (before, after)), store)
    assert {c.variant for c in found} == {"rope"}
    within = next(c for c in found if c.part == "id")
    assert (within.before, within.after, within.paired) == ("at chance", "learning", None)
    json.dumps([c.to_json() for c in found], allow_nan=False)


def test_one_correction_over_all_cells(store: Store) -> None:
    names = ("rope", "alibi", "t5", "none", "fire")
    before, after = (spec(*names, seeds=6, training={"steps": n}, lengths={"test_lengths": 0}) for n in (4, 9))
    finish_all(store, planned(before), {name: [0.8 + 0.01 * s for s in range(6)] for name in names})
    finish_all(store, planned(after), {name: [0.9 + 0.01 * s for s in range(6)] for name in names})
    found = changes(ARENA, *(tabulate(planned(c), store) for c in (before, after)), store)
    assert len(found) == 5
    p_values = [c.paired.p for c in found if c.paired and c.paired.p is not None]
    assert p_values == pytest.approx([5 / 32] * 5), "six seeds give 1/32 alone, and five such cells are no proof"
    assert all(c.paired and c.paired.winner is None for c in found)


def test_a_failure_is_no_win(store: Store) -> None:
    """Three of nine runs diverge after the change; the others are better than before."""
    before, after = (spec("rope", seeds=9, training={"steps": n}, lengths={"test_lengths": 0}) for n in (4, 9))
    finish_all(store, planned(before), {"rope": [0.8] * 9})
    for r in planned(after):
        fail(store, r, "NaN") if r.seed < 3 else finish(store, r, 0.9)
    (change,) = changes(ARENA, *(tabulate(planned(c), store) for c in (before, after)), store)
    assert change.paired is not None
    assert (change.paired.n, change.paired.failures, change.paired.winner) == (9, 3, None)


def test_trying_many_settings_against_one_widens_the_family(store: Store) -> None:
    base, *others = (spec("rope", seeds=6, training={"steps": n}, lengths={"test_lengths": 0}) for n in range(4, 9))
    for comparison in (base, *others):
        finish_all(store, planned(comparison), {"rope": [0.8 + 0.01 * comparison.training.steps] * 6})
    families = []
    for other in others:
        (change,) = changes(ARENA, *(tabulate(planned(c), store) for c in (base, other)), store)
        assert change.paired is not None
        families.append(change.paired.family)
    assert families == [1, 2, 3, 4]


def test_tables_of_a_sweep_meet_their_like(store: Store) -> None:
    before, after = spec("rope", sweep="k=1,2"), spec("rope", sweep="k=2,3", training={"steps": 9})
    pairs = matched(*(tabulate(planned(c), store) for c in (before, after)))
    assert [(str(one.planned.run.task), str(two.planned.run.task)) for one, two in pairs] == [
        ("k_back_recall:k=2,symbols=4",) * 2
    ]


def output(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    assert run(arguments) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


@pytest.mark.usefixtures("here", "in_process")
def test_more_training_seen_from_outside(capsys: pytest.CaptureFixture[str]) -> None:
    arena = [
        "arena",
        "compare",
        "--tasks",
        TASK,
        "--encodings",
        "rope",
        "t5",
        *TINY_FLAGS,
        "--lr",
        "0.01",
        "--seeds",
        "2",
    ]
    made = [document([*arena, "--steps", steps], capsys) for steps in ("5", "80")]
    names = [each["name"] for each in made]
    assert names == [Path(each["command"].split("--config ")[1]).stem for each in made]
    found = document(["report", *names, "--diff"], capsys)
    assert found["config"] == {"training.steps": {"before": 5, "after": 80}}
    assert (found["before"], found["after"]) == tuple(names)
    rope = next(c for c in found["cells"] if (c["variant"], c["part"]) == ("rope", "id"))
    assert rope["before"] == "at chance"
    assert rope["after"] in ("learning", "solved")
    printed = output(["report", names[0][:14], names[1], "--diff"], capsys)
    assert "training.steps" in printed
    assert "not ranked" in printed

    same = output(["report", names[1], names[1], "--diff"], capsys)
    assert "The configurations are equal." in same
    assert not any(word in same for word in ("better", "worse"))
    assert "'nothing' is not known" in output(["report", names[0], "nothing", "--diff"], capsys, code=2)
    assert "requires two comparisons, got 3" in output(["report", *names, names[0], "--diff"], capsys, code=2)

    never_run = save_config("arena", spec("rope", seeds=2), Store())
    assert never_run in saved_configs("arena", Store())
    assert "so nothing is compared" in output(["report", names[0], never_run.stem, "--diff"], capsys)
