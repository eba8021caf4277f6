"""Verdicts on published claims, from tables whose numbers are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.arena.made import fail, finish, tabulate
from tests.arena.made import planned as planned_by
from whence.arena.claims import CLAIMS, Judgement, judge
from whence.arena.config import ArenaConfig
from whence.arena.instrument import PRESETS
from whence.arena.run import ArenaRun
from whence.experiments.saved import read_config
from whence.store.runs import Store

UNDECIDABLE = "not decidable at this size"
Scores = tuple[float, float]
WIGGLE = [0.0, 0.003, 0.001, 0.004, 0.002, 0.005, 0.003]


@functools.cache
def planned(name: str) -> list[ArenaRun]:
    """No claim needs tuning, or seeds that begin elsewhere than at 0."""
    return planned_by(read_config(PRESETS.path(name), ArenaConfig))


def judged(name: str, store: Store, scores: Callable[[ArenaRun], Any], seeds: int | None = None) -> Judgement:
    """As if its preset had been run and every run had ended with these scores: (within, beyond), or with `exact`."""
    plan = [run for run in planned(name) if seeds is None or run.seed < seeds]
    for run in plan:
        found = scores(run)
        less = WIGGLE[run.seed % len(WIGGLE)]
        if found is not None:
            within, beyond, *exact = found
            finish(store, run, within - less, beyond - less, **({"exact": exact[0] - less} if exact else {}))
    return judge(CLAIMS[name], tabulate(plan, store))


def test_every_claim_has_a_preset_and_every_such_preset_a_claim() -> None:
    assert set(CLAIMS) == {name for name in PRESETS.names() if name.startswith("claim_")}
    for claim in CLAIMS.values():
        assert claim.authors
        assert claim.statement


@pytest.mark.parametrize("name", CLAIMS)
def test_nothing_is_claimed_of_nothing(name: str, store: Store) -> None:
    found = judged(name, store, lambda run: None)
    assert found.outcome == "not run"
    assert found.reason.startswith("0 of ")
    assert judge(CLAIMS[name], []).outcome == "not run"


@pytest.mark.parametrize("name", CLAIMS)
def test_a_single_missing_run_leaves_a_claim_open(name: str, store: Store) -> None:
    plan = planned(name)
    found = judged(name, store, lambda run: None if run.id == plan[-1].id else (1.0, 0.5))
    assert found.outcome == "not run"


def test_a_failed_run_leaves_a_claim_open(store: Store) -> None:
    plan = planned("claim_parity")
    fail(store, plan[3], "NaN")
    found = judged("claim_parity", store, lambda run: None if run.id == plan[3].id else (1.0, 0.5))
    assert found.outcome == UNDECIDABLE


@pytest.mark.parametrize("name", CLAIMS)
def test_fewer_than_six_seeds_judge_nothing(name: str, store: Store) -> None:
    found = judged(name, store, lambda run: (1.0, 0.5, 0.5), seeds=5)
    assert (found.outcome, found.reason) == (UNDECIDABLE, "5 seeds; 6 are needed")


def order(causal: float, both: float) -> Callable[[ArenaRun], Scores]:
    return lambda run: (causal if run.model.attention == "causal" else both, 0.5)


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        (order(0.6, 0.035), "reproduced"),
        (order(0.6, 0.6), "not reproduced"),
        (order(0.6, 0.2), "reproduced"),
        (order(0.03, 0.03), UNDECIDABLE),
    ],
)
def test_order_without_encoding(scores: Any, outcome: str, store: Store) -> None:
    assert judged("claim_order_without_encoding", store, scores).outcome == outcome


def copying(held: float, fell: float, mastered: str = "all") -> Callable[[ArenaRun], Any]:
    def scores(run: ArenaRun) -> Any:
        name = run.model.position_label
        within = 1.0 if mastered == "all" or name in mastered.split() else 0.9
        return within, 0.6, held if name in ("none", "t5") else fell

    return scores


@pytest.mark.parametrize("name", ["claim_copy", "claim_repeat_copy"])
@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        (copying(0.4, 0.05), "reproduced"),
        (copying(0.05, 0.4), "not reproduced"),
        (copying(0.2, 0.2), UNDECIDABLE),
        (copying(0.4, 0.05, "none t5"), UNDECIDABLE),
        (copying(0.4, 0.05, "rope alibi"), UNDECIDABLE),
        (copying(0.4, 0.05, ""), UNDECIDABLE),
        (copying(0.4, 0.05, "none rope"), "reproduced"),
    ],
)
def test_copying(name: str, scores: Any, outcome: str, store: Store) -> None:
    assert judged(name, store, scores).outcome == outcome


@pytest.mark.parametrize("name", ["claim_parity", "claim_modular_sum"])
@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        (lambda run: (1.0, 0.34), "reproduced"),
        (lambda run: (1.0, 0.97 if run.model.position_label == "alibi" else 0.34), "not reproduced"),
        (lambda run: (0.9, 0.34), UNDECIDABLE),
        (lambda run: (0.9, 0.97), UNDECIDABLE),
    ],
)
def test_staying_at_chance(name: str, scores: Any, outcome: str, store: Store) -> None:
    assert judged(name, store, scores).outcome == outcome


def randomised(plain: Scores, changed: Scores) -> Callable[[ArenaRun], Scores]:
    def scores(run: ArenaRun) -> Scores:
        within, beyond = changed if run.model.positions else plain
        return within, beyond - (0.03 if run.model.encoding.name == "sinusoidal" and not run.model.positions else 0)

    return scores


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        (randomised((1.0, 0.5), (1.0, 0.9)), "reproduced"),
        (randomised((1.0, 0.7), (1.0, 0.9)), "reproduced"),
        (randomised((1.0, 0.9), (1.0, 0.7)), "not reproduced"),
        (randomised((1.0, 0.5), (1.0, 0.5)), UNDECIDABLE),
        (randomised((1.0, 0.5), (0.9, 0.9)), UNDECIDABLE),
    ],
)
def test_randomised_positions(scores: Any, outcome: str, store: Store) -> None:
    assert judged("claim_even_pairs", store, scores).outcome == outcome


def recall(few: Scores, many: Scores) -> Callable[[ArenaRun], Scores]:
    """(attention, state) at few pairs and at many."""

    def scores(run: ArenaRun) -> Scores:
        pair = few if run.train_length == 2 else many
        noise = 0.02 * (run.seed % 3) if run.model.mixer.name == "mamba" and run.train_length == 8 else 0.0
        return pair[run.model.mixer.name != "attention"] - noise, 0.0

    return scores


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        (recall((1.0, 1.0), (1.0, 0.5)), "reproduced"),
        (recall((1.0, 0.5), (1.0, 0.9)), "not reproduced"),
    ],
)
def test_recall_needs_state(scores: Any, outcome: str, store: Store) -> None:
    assert judged("claim_recall_needs_state", store, scores).outcome == outcome


def test_a_gap_that_does_not_grow_is_left_open(store: Store) -> None:
    def scores(run: ArenaRun) -> Scores:
        sign = 1 if run.seed % 2 else -1
        state = run.model.mixer.name != "attention"
        return 0.9 - 0.1 * state + (0.05 * sign if state and run.train_length == 8 else 0), 0.0

    assert judged("claim_recall_needs_state", store, scores).outcome == UNDECIDABLE
