"""`--sweep` and `--tune`: what the text means, and what it must not mean."""

from __future__ import annotations

import pytest

from tests.arena.made import planned, spec
from whence.arena.instrument import ARENA
from whence.arena.tuning import parse_grid, unfold
from whence.errors import UserError
from whence.experiments.comparison import check_plan
from whence.store.runs import Store
from whence.tasks import TASKS

RECALL, COPY = TASKS.choose("k_back_recall"), TASKS.choose("copy")


def test_text_is_read_in_its_order_and_spaces_do_not_matter() -> None:
    assert parse_grid("sweep", " d_model = 64 , 128 ;; k=1,3 ; ", [RECALL]) == [
        ("d_model", ["64", "128"]),
        ("k", ["1", "3"]),
    ]
    assert parse_grid("sweep", "", [RECALL]) == parse_grid("tune", " ; ", [RECALL]) == []
    mixers = ["attention", "mamba:d_state=4"]
    assert parse_grid("sweep", "mixer=attention,mamba:d_state=4", [RECALL]) == [("mixer", mixers)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("d_modle=1,2", ["'d_modle' is not known", "Did you mean 'd_model'?"]),
        ("kk=1,2", ["'kk' is not known", "Did you mean 'k'?"]),
        ("letters=4,8", ["'letters' is not known"]),
        ("encoding=rope,alibi", ["'encoding' is not known"]),
        ("seed=1,2", ["'seed' is not known"]),
        ("lr=0.1;lr=0.2", ["'lr' is listed twice"]),
        ("lr=", ["'lr=' is not valid", "FIELD=VALUE"]),
        ("lr=0.1,", ["'lr=0.1,' is not valid"]),
        ("lr", ["'lr' is not valid"]),
        ("=3", ["'' is not known"]),
        ("lr=0.1,0.1", ["'lr=0.1,0.1' lists a value twice"]),
    ],
)
def test_mistakes_are_named(text: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse_grid("sweep", text, [RECALL])
    assert caught.value.field == "sweep"
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["k", "train_length", "test_sequences", "d_model", "steps", "mixer", "evaluations"])
def test_nobody_may_tune_the_task_or_the_model(name: str) -> None:
    """An encoding that could choose its task, or a larger model, or more training, would not be compared alike."""
    with pytest.raises(UserError, match=f"tune: '{name}' is not known"):
        spec(tune=f"{name}=8,16")


def test_only_options_that_a_task_has_unfold_it() -> None:
    grid = parse_grid("sweep", "k=1,3;letters=4,8,16;layers=1,2", [RECALL, COPY])
    assert list(unfold(grid, RECALL)) == [{"k": k, "layers": n} for k in "13" for n in "12"]
    assert [s["letters"] for s in unfold(grid, COPY)] == ["4", "4", "8", "8", "16", "16"]
    runs = planned(spec("rope", tasks=["k_back_recall:k=1", "copy"], sweep="k=1,3", lengths={"test_lengths": None}))
    assert [str(run.task) for run in runs if run.seed == 0] == ["k_back_recall:k=1", "k_back_recall", "copy"]


def test_values_reach_every_part_of_a_run_and_ids_are_unique() -> None:
    plan = planned(spec("rope", "t5", sweep="layers=1,2;train_length=4,8;k=1,2", tune="lr=0.001,0.01;clip=1,2"))
    tuning, reported = (2 * 2) * (2 * 2 * 2) * (2 * 2), (2 * 2) * (2 * 2 * 2)  # seeds and encodings, sweep, tune
    assert len(plan) == len({run.id for run in plan}) == tuning + reported
    settings = {(r.model.layers, r.train_length, r.task.options()["k"], r.training.lr, r.training.clip) for r in plan}
    assert settings == {
        (n, t, k, lr, clip) for n in (1, 2) for t in (4, 8) for k in (1, 2) for lr in (0.001, 0.01) for clip in (1, 2)
    }
    assert {str(run.task) for run in plan} == {"k_back_recall:k=1,symbols=4", "k_back_recall:k=2,symbols=4"}


def test_a_swept_run_is_the_run_that_was_asked_for_plainly() -> None:
    """A sweep must not train again what is there already."""
    swept = {run.id for run in planned(spec("rope", sweep="layers=1,2;lr=0.001,0.003"))}
    for layers in (1, 2):
        assert {run.id for run in planned(spec("rope", model={"layers": layers}, training={"lr": 0.003}))} <= swept


def test_swept_lengths_are_lengths() -> None:
    plan = planned(spec("rope", sweep="test_lengths=16,0"))
    assert [run.test_lengths for run in plan if run.seed == 0] == [(16,), ()]
    (run, *_) = planned(spec("rope", sweep="train_length=none", tasks=["copy"], lengths={"test_lengths": None}))
    assert (run.train_length, run.test_lengths) == (16, (32, 64))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep": "lr=0.1,0.2", "tune": "lr=0.3"}, "tune: 'lr' is also in --sweep"),
        ({"sweep": "lr=0.1,1e-1"}, "listed twice"),
        ({"tune": "lr=0.1,1e-1"}, "listed twice"),
        ({"sweep": "layers=1,two"}, "model.layers: expected a valid integer, got 'two'"),
        ({"sweep": "k=1,0"}, "k: expected a value greater than or equal to 1, got '0'"),
        ({"sweep": "train_length=8,16"}, "test_lengths: 16 is not possible here. Allowed: more than train_length=16"),
        ({"sweep": "heads=2,3"}, "heads: 3 does not divide d_model=16"),
    ],
)
def test_impossible_sweeps_are_refused_before_any_work(changes: dict[str, str], message: str, store: Store) -> None:
    with pytest.raises(UserError, match=message):
        check_plan(ARENA, spec("rope", **changes), store)
