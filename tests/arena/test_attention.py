"""Attention maps of stored runs."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
import torch

from tests.arena.made import finish, one, planned, spec, tabulate
from whence.arena.attention import (
    ATTENTION,
    LONGEST_MAP,
    AttentionMaps,
    AttentionRequest,
    attention_maps,
    attention_weights,
    load_model,
)
from whence.arena.instrument import ARENA
from whence.arena.page import stored_maps
from whence.arena.run import ArenaRun
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import measure, plan_comparison
from whence.random import Streams
from whence.store.disk import CorruptFileError
from whence.store.runs import RunFolder, Store

Tiny = Callable[..., ArenaRun]
SHORT = {"steps": 2, "evaluations": 1}


def trained(run: ArenaRun, store: Store) -> RunFolder:
    assert execute(run, store, ExecutionOptions(threads=1)).state == "finished"
    return store.folder(run.id)


def values(maps: AttentionMaps) -> torch.Tensor:
    """Weights as they are drawn."""
    shape = (maps.layers, maps.examples, maps.heads, maps.tokens, maps.tokens)
    return torch.frombuffer(bytearray(base64.b64decode(maps.weights)), dtype=torch.uint8).reshape(shape) / 255


def test_an_encoding_that_inserts_tokens_has_no_maps(tiny: Tiny, store: Store) -> None:
    run = tiny(task="k_back_recall:k=1,symbols=4", model={"encoding": "position_tokens:count=3"}, training=SHORT)
    assert attention_maps(run, trained(run, store)) == AttentionMaps()


@pytest.mark.parametrize("attention", ["causal", "bidirectional", "prefix"])
def test_maps_are_shares_of_what_may_be_seen(tiny: Tiny, store: Store, attention: str) -> None:
    run = tiny(
        task="copy:answers=blank" if attention != "causal" else "k_back_recall:k=1,symbols=4",
        model={"attention": attention, "layers": 2},
        training=SHORT,
    )
    maps = attention_maps(run, trained(run, store), examples=2)
    tokens = run.task.build().tokens(8)
    assert (maps.layers, maps.examples, maps.heads, maps.tokens) == (2, 2, 2, tokens)
    assert [len(inputs) for inputs in maps.inputs] == [tokens, tokens]
    captured = attention_weights(run, store.folder(run.id))
    assert captured is not None
    weights = captured[0]
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert (values(maps) - weights[:, :2]).abs().max() <= 0.5 / 255 + 1e-6, "stored in steps of 1/255"
    ahead = weights * torch.ones(tokens, tokens).triu(1)
    if attention == "causal":
        assert not ahead.any()
    elif attention == "bidirectional":
        assert (ahead.sum((-1, -2)) > 0).all()
    else:
        prompt = 9  # eight letters and the separator
        assert ahead[..., :prompt, :prompt].any()
        assert not ahead[..., prompt:].any()


def test_mean_distance_is_that_of_a_plain_recount(tiny: Tiny, store: Store) -> None:
    run = tiny(training=SHORT, model={"layers": 2})
    maps = attention_maps(run, trained(run, store), examples=16)  # all sequences of the set
    assert [len(layer) for layer in maps.distance] == [2, 2]
    captured = attention_weights(run, store.folder(run.id))
    assert captured is not None
    weights = captured[0].tolist()
    for layer in range(2):
        for head in range(2):
            total = sum(
                weights[layer][row][head][query][key] * abs(query - key)
                for row in range(16)
                for query in range(8)
                for key in range(8)
            )
            assert maps.distance[layer][head] == pytest.approx(total / (16 * 8), rel=1e-4)
    few = attention_maps(run, store.folder(run.id), examples=2)
    assert few.distance == maps.distance, "the mean is over the whole set, not over what is drawn"
    assert torch.equal(values(few), values(maps)[:, :2])


def test_attention_on_the_answer_is_that_of_a_plain_recount(tiny: Tiny, store: Store) -> None:
    run = tiny(task="k_back_recall:k=2,symbols=4", training=SHORT, model={"layers": 2})
    maps = attention_maps(run, trained(run, store), examples=2)
    assert maps.answer_keys == ((-1, -1, 0, 1, 2, 3, 4, 5),) * 2
    captured = attention_weights(run, store.folder(run.id))
    assert captured is not None
    weights = captured[0]
    for layer in range(2):
        for head in range(2):
            shares = [weights[layer, row, head, query, query - 2] for row in range(16) for query in range(2, 8)]
            assert maps.on_answer[layer][head] == pytest.approx(sum(map(float, shares)) / len(shares), rel=1e-4)
    other = tiny(task="modular_sum", training=SHORT)
    silent = attention_maps(other, trained(other, store))
    assert (silent.answer_keys, silent.on_answer) == ((), ()), "no single token holds a sum"


def test_maps_are_the_same_whenever_they_are_asked_for(tiny: Tiny, store: Store) -> None:
    """Also where positions are drawn: equal results must make equal pages."""
    run = tiny(model={"encoding": "alibi", "positions": "randomized:span=64"}, training=SHORT)
    folder = trained(run, store)
    torch.manual_seed(1)
    one = attention_maps(run, folder)
    drawn = torch.rand(3)
    torch.manual_seed(2)
    two = attention_maps(run, folder)
    assert one.weights
    assert one == two
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), drawn), "measuring moved the random state of the caller"


def test_a_model_without_attention_and_one_too_long_have_none(tiny: Tiny, store: Store) -> None:
    run = tiny(model={"mixer": "mamba", "encoding": "none"}, training=SHORT)
    assert attention_maps(run, trained(run, store)) == AttentionMaps()
    long = spec("rope", seeds=1, lengths={"train_length": LONGEST_MAP + 1, "test_lengths": 0})
    for run in planned(long):
        finish(store, run, 0.5)
    (table,) = plan_comparison(ARENA, long, store)
    assert not ARENA.measurements(table, store)


def test_damaged_weights_are_refused_and_the_other_maps_stay(store: Store) -> None:
    comparison = spec("rope", "alibi", "t5", seeds=1, training={"steps": 2, "evaluations": 1})
    plan = planned(comparison)
    for run in plan:
        trained(run, store)
    weights = store.folder(plan[0].id).weights
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(CorruptFileError, match="checksum"):
        load_model(plan[0], store.folder(plan[0].id))
    store.folder(plan[1].id).weights.unlink()
    (table,) = plan_comparison(ARENA, comparison, store)
    problems = [problem for each in ARENA.measurements(table, store) for problem in measure(each, store, print)]
    assert [problem.split(":")[0] for problem in problems if "not possible" in problem] == [
        "Measuring attention of rope",
        "Measuring attention of alibi",
    ]
    tabulated = one(tabulate(plan, store))
    assert set(stored_maps(tabulated, store)) == {"t5"}
    path = ATTENTION.path(AttentionRequest(run=plan[2].id), store)
    path.write_bytes(path.read_bytes().replace(b'"layers"', b'"layer5"'))
    assert not stored_maps(tabulated, store)


def test_the_loaded_model_is_the_one_that_was_scored(tiny: Tiny, store: Store) -> None:
    run = tiny(training={"steps": 40, "evaluations": 1, "lr": 0.01})
    folder = trained(run, store)
    job = run.job()
    job.model = load_model(run, folder)
    job.device = torch.device("cpu")
    with torch.no_grad():
        assert job.evaluate(Streams.of(run.seed)).model_dump(mode="json") == folder.status().latest
    assert not job.model.training
