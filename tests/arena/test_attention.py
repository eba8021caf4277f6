"""Attention maps of stored runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.arena.made import one, planned, spec, tabulate
from whence.arena.attention import LONGEST_MAP, attention_maps, load_model, maps_of
from whence.arena.run import ArenaRun
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.random import Streams
from whence.store.files import CorruptFileError
from whence.store.runs import RunFolder, Store

Tiny = Callable[..., ArenaRun]
SHORT = {"steps": 2, "evaluations": 1}


def trained(run: ArenaRun, store: Store) -> RunFolder:
    assert execute(run, store, ExecutionOptions(threads=1))["state"] == "finished"
    return store.folder(run.id)


@pytest.mark.parametrize("attention", ["causal", "bidirectional", "prefix"])
def test_maps_are_shares_of_what_may_be_seen(tiny: Tiny, store: Store, attention: str) -> None:
    run = tiny(
        task="copy:answers=blank" if attention != "causal" else "k_back_recall:k=1,symbols=4",
        model={"attention": attention, "layers": 2},
        training=SHORT,
    )
    maps = attention_maps(run, trained(run, store), examples=2)
    tokens = run.task.build().tokens(8)
    assert maps is not None
    assert maps.weights.shape == (2, 2, 2, tokens, tokens)
    assert maps.inputs.shape == (2, tokens)
    torch.testing.assert_close(maps.weights.sum(-1), torch.ones(2, 2, 2, tokens))
    ahead = maps.weights * torch.ones(tokens, tokens).triu(1)
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
    assert maps is not None
    assert maps.distance.shape == (2, 2)
    weights = maps.weights.tolist()
    for layer in range(2):
        for head in range(2):
            total = sum(
                weights[layer][row][head][query][key] * abs(query - key)
                for row in range(16)
                for query in range(8)
                for key in range(8)
            )
            assert maps.distance[layer, head].item() == pytest.approx(total / (16 * 8), rel=1e-4)
    few = attention_maps(run, store.folder(run.id), examples=2)
    assert few is not None
    assert torch.equal(few.distance, maps.distance), "the mean is over the whole set, not over what is drawn"
    assert torch.equal(few.weights, maps.weights[:, :2])


def test_maps_are_the_same_whenever_they_are_asked_for(tiny: Tiny, store: Store) -> None:
    """Also where positions are drawn: equal results must make equal pages."""
    run = tiny(model={"encoding": "alibi", "positions": "randomized:span=64"}, training=SHORT)
    folder = trained(run, store)
    torch.manual_seed(1)
    one = attention_maps(run, folder)
    drawn = torch.rand(3)
    torch.manual_seed(2)
    two = attention_maps(run, folder)
    assert one is not None
    assert two is not None
    assert torch.equal(one.weights, two.weights)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), drawn), "looking moved the random state of the caller"


def test_a_model_without_attention_and_one_too_long_have_none(tiny: Tiny, store: Store) -> None:
    run = tiny(model={"mixer": "mamba", "encoding": "none"}, training=SHORT)
    assert attention_maps(run, trained(run, store)) is None
    long = tiny(lengths={"train_length": LONGEST_MAP + 1, "test_lengths": 0})
    assert attention_maps(long, store.folder(long.id)) is None, "and its weights are not even opened"


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
    assert set(maps_of(one(tabulate(plan, store)), store)) == {"t5"}


def test_the_loaded_model_is_the_one_that_was_scored(tiny: Tiny, store: Store) -> None:
    run = tiny(training={"steps": 40, "evaluations": 1, "lr": 0.01})
    folder = trained(run, store)
    job = run.job()
    job.model = load_model(run, folder)
    job.device = torch.device("cpu")
    with torch.no_grad():
        assert job.evaluate(Streams.of(run.seed)).model_dump(mode="json") == folder.status()["latest"]
    assert not job.model.training
