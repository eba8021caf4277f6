"""One run: what is left open is filled in, the impossible is refused, and evaluations count what they say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.conftest import TINY, merged
from whence.arena.metrics import EvalCounts, pool
from whence.arena.run import ArenaRun, answers, evaluation_batches
from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.random import Streams, generator
from whence.store.runs import Store
from whence.training.config import load_run_config

Tiny = Callable[..., ArenaRun]


def test_a_task_fills_in_its_own_lengths_and_they_are_stored() -> None:
    for task, train, beyond in (("copy", 16, (32, 64)), ("k_back_recall", 32, (64, 128)), ("own_position", 32, ())):
        run = ArenaRun.read({"task": task})
        assert (run.train_length, run.test_lengths) == (train, beyond)
        stored = json.loads(json.dumps(run.document()))
        assert stored["lengths"]["train_length"] == train
        assert stored["lengths"]["test_lengths"] == list(beyond)
        again = load_run_config(stored)
        assert again == run
        assert again.id == run.id
    assert ArenaRun.read({"task": "copy", "lengths": {"train_length": 10}}).test_lengths == (20, 40)


def test_lengths_that_are_spelled_out_make_the_same_run() -> None:
    plain = ArenaRun.read({"task": "copy"})
    told = ArenaRun.read({"task": "copy", "lengths": {"train_length": 16, "test_lengths": [32, 64]}})
    assert told.id == plain.id


@pytest.mark.parametrize("nothing", [0, "0", [0], ["0"], []])
def test_zero_means_nothing_beyond_training(tiny: Tiny, nothing: Any) -> None:
    run = tiny(lengths={"test_lengths": nothing})
    assert run.test_lengths == ()
    assert load_run_config(run.document()).id == run.id
    job = run.job()
    job.setup(Streams.of(0), torch.device("cpu"))
    found = job.evaluate(Streams.of(0))
    assert set(found.headline) == {"id"}
    assert list(found.lengths) == [8]
    assert "ood" not in found


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"task": "k_back_recall:k=9"}, ["train_length: 8", "10 or more"]),
        ({"task": "own_position:places=8"}, ["test_lengths: 16", "8 or less"]),
        ({"task": "own_position:places=4", "lengths": {"test_lengths": [0]}}, ["train_length: 8", "4 or less"]),
        ({"lengths": {"test_lengths": [8]}}, ["test_lengths: 8", "more than train_length=8"]),
        ({"lengths": {"test_lengths": [16, 16]}}, ["test_lengths: 16", "each length once"]),
        ({"lengths": {"min_length": 9}}, ["min_length: 9", "at most train_length=8"]),
        ({"task": "copy", "model": {"attention": "bidirectional"}}, ["earlier answers", "answers=blank"]),
        ({"task": "sort", "model": {"mixer": "bimamba", "encoding": "none"}}, ["earlier answers", "answers=blank"]),
        ({"model": {"attention": "prefix"}}, ["'prefix'", "has no prompt"]),
        ({"model": {"mixer": "mamba", "attention": "bidirectional", "encoding": "none"}}, ["'bidirectional'", "mamba"]),
        (
            {"model": {"mixer": "mamba"}},
            ["rope enters through rotate", "Allowed: learned, none, position_tokens, sinusoidal"],
        ),
    ],
)
def test_the_impossible_is_refused(tiny: Tiny, changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        tiny(**changes).check()
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "copy:answers=blank", "model": {"attention": "bidirectional"}},
        {"task": "copy:answers=blank", "model": {"mixer": "bimamba", "encoding": "none"}},
        {"task": "copy", "model": {"attention": "prefix"}},
        {"task": "copy", "model": {"mixer": "mamba", "encoding": "none"}},
        {"task": "long_range_match:ask=location"},
        {"task": "marker_distance"},
    ],
)
def test_the_possible_is_trained(tiny: Tiny, tmp_path: Any, changes: dict[str, Any]) -> None:
    run = tiny(**changes, training={"steps": 2, "evaluations": 1})
    assert run.check() > 0
    status = execute(run, Store(tmp_path), ExecutionOptions(threads=1))
    assert status.state == "finished", status.error
    assert status.step == 2
    assert 0 <= status.latest["headline"]["ood"] <= 1


def test_prefix_attention_sees_the_question_and_no_answer(tiny: Tiny) -> None:
    """Where the prefix ends is the task's word: one place too far and the model would read what it is asked for."""
    run = tiny(task="copy", model={"attention": "prefix", "layers": 2})
    model = run.build_model("cpu").eval()
    batch = run.task.build().sample(torch.Generator().manual_seed(0), 4, 6)
    told = answers(model, batch)
    for place in range(batch.prompt, batch.inputs.shape[1]):
        other = batch.inputs.clone()
        other[:, place:] = (other[:, place:] + 1) % 8
        changed = answers(model, type(batch)(other, batch.positions, batch.targets, batch.scored, batch.prompt))
        torch.testing.assert_close(changed[:, :place], told[:, :place], rtol=0, atol=0)
    other = batch.inputs.clone()
    other[:, batch.prompt - 2] = (other[:, batch.prompt - 2] + 1) % 8
    changed = answers(model, type(batch)(other, batch.positions, batch.targets, batch.scored, batch.prompt))
    assert not torch.equal(changed[:, 0], told[:, 0]), "the first token does not look ahead in the question"


TASKS = {
    "dense": ("k_back_recall:k=2,symbols=4", 8, (16, 100)),
    "dense, asked from the first": ("modular_sum:base=3", 8, (70,)),
    "per sequence": ("long_range_match:symbols=5", 8, (16,)),
    "per place": ("long_range_match:ask=location,symbols=5", 8, (12,)),
    "fed": ("copy:letters=4", 5, (10, 40)),
}


def plain_count(run: ArenaRun, model: torch.nn.Module, purpose: str, length: int) -> dict[str, Any]:
    """The same evaluation, one answer at a time; what is right is worked out from the inputs."""
    task = run.task.build()
    tokens = task.tokens(length)
    width = math.ceil(tokens / 64)
    bins = math.ceil(tokens / width)
    right_at, asked_at = [0] * bins, [0] * bins
    correct = total = squares = exact = sequences = 0
    losses: list[float] = []
    for batch in evaluation_batches(run, Streams.of(run.seed), purpose, length):
        with torch.no_grad():
            outputs = answers(model, batch)
        for inputs, said in zip(batch.inputs.tolist(), outputs.tolist(), strict=True):
            truth = task.solve(inputs)
            logits = said if task.per != "sequence" else [said]
            hits = []
            for place, (answer, scores) in enumerate(zip(truth, logits, strict=True)):
                if answer is None:
                    continue
                right = scores.index(max(scores)) == answer
                if task.per == "token":
                    right_at[place // width] += right
                    asked_at[place // width] += 1
                if task.dense and length > run.train_length and place < run.train_length:
                    continue
                hits.append(right)
                losses.append(math.log(sum(math.exp(s) for s in scores)) - scores[int(answer)])
            sequences, correct, total = sequences + 1, correct + sum(hits), total + len(hits)
            squares, exact = squares + sum(hits) ** 2, exact + all(hits)
    found: dict[str, Any] = {
        "correct": correct,
        "total": total,
        "sequences": sequences,
        "squares": squares,
        "exact": exact,
        "loss": pytest.approx(sum(losses) / len(losses), rel=1e-4),
    }
    if task.per == "token":
        found["positions"] = {"width": width, "correct": right_at, "total": asked_at}
    return found


@pytest.mark.parametrize("kind", TASKS)
def test_evaluations_count_what_a_plain_recount_counts(tiny: Tiny, kind: str) -> None:
    task, train, beyond = TASKS[kind]
    lengths = {"train_length": train, "test_lengths": beyond, "test_sequences": 70}  # more than one batch of them
    run = tiny(task=task, lengths=lengths)
    job, streams = run.job(), Streams.of(run.seed)
    job.setup(streams, torch.device("cpu"))
    with torch.no_grad():
        found = job.evaluate(streams)
    expected = {n: plain_count(run, job.model, "test", n) for n in (train, *beyond)}
    assert {n: counts.model_dump(mode="json", exclude_none=True) for n, counts in found.lengths.items()} == expected
    assert all(counts["correct"] for counts in expected.values()), "nothing right: the recount proves little"
    names = ("correct", "total", "sequences", "squares", "exact")
    assert {n: getattr(found.id, n) for n in names} == {n: expected[train][n] for n in names}
    assert {n: getattr(found.ood, n) for n in names} == {n: sum(expected[b][n] for b in beyond) for n in names}
    assert found.headline["ood"] == found.ood.correct / found.ood.total
    validation = plain_count(run, job.model, "validation", train)
    assert {n: getattr(found.validation, n) for n in names} == {n: validation[n] for n in names}
    if task.startswith("k_back"):
        assert found.lengths[100].positions.width == 2
        assert found.lengths[16].total == 70 * 8, "what lies within training counts for nothing beyond it"


def test_pooled_losses_are_weighted_by_answers() -> None:
    one = EvalCounts(correct=1, sequences=1, squares=1, exact=0, total=1, loss=4.0)
    pooled = pool([one, one.model_copy(update={"total": 3, "loss": 0.0})])
    assert (pooled.total, pooled.loss) == (4, 1.0)


def inputs(run: ArenaRun, purpose: str, length: int) -> torch.Tensor:
    return torch.cat([batch.inputs for batch in evaluation_batches(run, Streams.of(run.seed), purpose, length)])


def test_evaluation_data_are_drawn_per_seed_and_shared_by_all_encodings(tiny: Tiny) -> None:
    one = tiny(lengths={"test_sequences": 100})
    others = {"model": {"encoding": "alibi"}}, {"training": {"lr": 1.0, "batch_size": 2}}
    parts = (("test", 8), ("test", 16), ("validation", 8))
    for changes in others:
        other = tiny(**changes, lengths={"test_sequences": 100})
        for purpose, length in parts:
            assert torch.equal(inputs(one, purpose, length), inputs(other, purpose, length))
    for purpose, length in parts:
        assert not torch.equal(
            inputs(one, purpose, length), inputs(tiny(seed=5, lengths={"test_sequences": 100}), purpose, length)
        )
    test, validation = inputs(one, "test", 8).tolist(), inputs(one, "validation", 8).tolist()
    assert len(test) == 100
    shared = sum(row in test for row in validation)
    assert shared < 10, "sequences of 8 among 4 symbols: hardly any should be in both"
    assert test[:36] != test[64:], "a batch is repeated"


def test_test_sequences_that_occur_in_training_are_counted(tiny: Tiny) -> None:
    """By a recount in plain Python; sequences of 4 among 2 symbols occur, sequences of 20 among 8 do not."""
    for symbols, length in ((2, 4), (8, 20)):
        run = tiny(
            task=f"k_back_recall:k=2,symbols={symbols}", lengths={"train_length": length, "test_lengths": [2 * length]}
        )
        job, streams = run.job(), Streams.of(run.seed)
        job.setup(streams, torch.device("cpu"))
        with torch.no_grad():
            seen = job.evaluate(streams).seen_in_training
        trained: list[list[int]] = []
        job.model.register_forward_pre_hook(lambda _, given, trained=trained: trained.extend(given[0].tolist()))
        for step in range(run.training.steps):
            job.step(generator(streams.data, step))
        assert seen == sum(row in trained for row in inputs(run, "test", length).tolist())
        assert (seen > 0) == (length == 4)


def test_evaluations_during_training_take_fewer_sequences(tiny: Tiny) -> None:
    run = tiny(lengths={"test_sequences": 100})
    job, streams = run.job(), Streams.of(run.seed)
    job.setup(streams, torch.device("cpu"))
    with torch.no_grad():
        during, final = job.monitor(streams), job.evaluate(streams)
    assert {counts.sequences for counts in during.lengths.values()} == {32}
    assert {counts.sequences for counts in final.lengths.values()} == {100}
    assert (during.validation, final.validation.sequences) == (None, 100), "validation is for the trained model alone"


def test_equal_seeds_train_on_equal_data(tiny: Tiny) -> None:
    """Paired: for one seed every encoding is shown the same batches and starts from the same weights."""
    jobs = [ArenaRun.read(merged(TINY, {"model": {"encoding": e}})).job() for e in ("rope", "alibi")]
    seen: list[list[torch.Tensor]] = [[], []]
    for job, batches in zip(jobs, seen, strict=True):
        job.setup(Streams.of(0), torch.device("cpu"))
        job.model.register_forward_pre_hook(lambda _, given, batches=batches: batches.append(given[0]))
        for step in range(3):
            job.step(torch.Generator().manual_seed(step))
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    one, two = (job.model.state_dict() for job in jobs)
    assert all(torch.equal(one[name], two[name]) for name in set(one) & set(two))
