"""What every task must keep to. A new file in the folder is tested by it with no edit here."""

from __future__ import annotations

import contextlib
import inspect
import re

import pytest
import torch

from whence.arena.run import ArenaRun
from whence.shortcuts import baselines
from whence.shortcuts.classes import CLASSES
from whence.tasks import TASKS, Batch, Task

FURTHER_OPTIONS = {
    "associative_recall": ["keys=40,values=2"],
    "copy": ["letters=2"],
    "k_back": ["k=1,symbols=3", "k=5"],
    "k_back_recall": ["k=1,symbols=2"],
    "long_range_match": ["symbols=3", "ask=location,symbols=3"],
    "marker_distance": ["distractors=1"],
    "modular_arithmetic": ["base=2", "base=7,operators=+-"],
    "needle": ["letters=2", "letters=50"],
    "own_position": ["places=40"],
    "repeat_copy": ["times=1", "letters=2"],
    "reverse": ["letters=2"],
    "reversed_pattern": ["pattern=2,slack=1,others=1", "pattern=6,slack=4", "ask=location,pattern=2"],
    "shift_invariant_pattern": ["others=1", "ask=detection,others=1"],
    "sort": ["letters=2"],
}
"""Beyond the defaults and the options of a task's own examples."""

CHOICES = [
    str(choice)
    for name in TASKS.names()
    for choice in dict.fromkeys(
        TASKS.choose(f"{name}:{options}")
        for options in ["", *(example[0] for example in TASKS[name].examples), *FURTHER_OPTIONS.get(name, [])]
    )
]
every_choice = pytest.mark.parametrize("choice", CHOICES)
every_name = pytest.mark.parametrize("name", TASKS.names())


def build(choice: str) -> Task:
    return TASKS.choose(choice).build()


def lengths(task: Task) -> list[int]:
    wanted = {task.shortest, task.shortest + 1, 17, 40}
    return sorted(n for n in wanted if task.shortest <= n <= (task.longest or n))


def draw(task: Task, rows: int, length: int, seed: int = 0) -> Batch:
    return task.sample(torch.Generator().manual_seed(seed), rows, length)


@every_name
def test_examples_are_solved_as_worked_by_hand(name: str) -> None:
    assert TASKS[name].examples, "no example"
    for options, inputs, answers in TASKS[name].examples:
        task = build(f"{name}:{options}")
        assert task.solve(inputs) == answers
        assert max(inputs) < task.symbols
        if task.per == "token":
            assert len(answers) == len(inputs)


@every_choice
def test_the_answer_depends_on_the_token_that_is_said_to_hold_it(choice: str) -> None:
    task = build(choice)
    for length in lengths(task):
        batch = draw(task, 3, length, seed=length)
        keys = task.answer_keys(batch)
        if keys is None:
            continue
        rows, tokens = batch.inputs.shape
        keys = keys.expand(rows, tokens)
        assert torch.equal(keys >= 0, batch.scored), "one key per query that is scored"
        assert (keys <= torch.arange(tokens)).all(), "which a causal model can attend to"
        for inputs, of_row in zip(batch.inputs.tolist(), keys.tolist(), strict=True):
            query, key = next((query, key) for query, key in reversed(list(enumerate(of_row))) if key >= 0)
            answers = {answer_with(task, inputs, key, symbol, query) for symbol in range(task.symbols)}
            assert len(answers - {None}) > 1


def answer_with(task: Task, inputs: list[int], place: int, symbol: int, query: int) -> object:
    """The answer at `query` with another symbol at `place`; None where that is no problem of the task."""
    with contextlib.suppress(LookupError, ValueError):
        return task.solve([*inputs[:place], symbol, *inputs[place + 1 :]])[query]
    return None


@pytest.mark.parametrize("name", ["k_back_recall", "copy", "reverse", "repeat_copy", "copy:answers=blank"])
def test_the_token_that_holds_the_answer_is_the_answer(name: str) -> None:
    task = build(name)
    batch = draw(task, 20, 16)
    keys = task.answer_keys(batch)
    assert keys is not None
    found = batch.inputs.gather(1, keys.expand_as(batch.inputs).clamp(min=0))
    assert torch.equal(found[batch.scored], batch.targets[batch.scored])


def test_the_answer_to_a_recalled_key_is_beside_it() -> None:
    task = build("associative_recall:keys=4,values=5")
    batch = draw(task, 1, 3)
    inputs = torch.tensor([[0, 7, 2, 5, 3, 7, 2, 3, 0]])
    keys = task.answer_keys(Batch(inputs, batch.positions, batch.targets, batch.scored, prompt=6))
    assert keys is not None
    assert keys.tolist() == [[-1] * 6 + [3, 5, 1]]
    assert build("sort").answer_keys(draw(build("sort"), 1, 4)) is None


@every_choice
def test_labels_are_the_truth(choice: str) -> None:
    task = build(choice)
    for length in lengths(task):
        batch = draw(task, 100, length, seed=length)
        for row, inputs in enumerate(batch.inputs.tolist()):
            answers, targets = task.solve(inputs), batch.targets[row].reshape(-1).tolist()
            if task.per == "token":
                assert batch.scored[row].tolist() == [answer is not None for answer in answers]
            known = [(target, answer) for target, answer in zip(targets, answers, strict=True) if answer is not None]
            assert [target for target, _ in known] == pytest.approx([answer for _, answer in known])


@every_choice
def test_batches_are_of_the_declared_kind(choice: str) -> None:
    task = build(choice)
    for length in lengths(task):
        batch, tokens = draw(task, 30, length), task.tokens(length)
        assert batch.inputs.shape == (30, tokens)
        assert batch.inputs.dtype == torch.long
        assert batch.inputs.min() >= 0
        assert batch.inputs.max() < task.symbols
        assert batch.positions.tolist() == [list(range(tokens))]
        assert batch.scored.dtype == torch.bool
        assert batch.scored.shape == {"token": (30, tokens), "sequence": (30,), "place": (30, task.outputs)}[task.per]
        assert batch.scored.flatten(1 if batch.scored.ndim > 1 else 0).any(-1).all(), "a sequence that asks nothing"
        assert 0 <= batch.prompt <= tokens
        if task.goal == "regression":
            assert batch.targets.shape == (*batch.scored.shape, task.outputs)
            assert batch.targets.is_floating_point()
            assert batch.targets.isfinite().all()
        else:
            assert batch.targets.shape == batch.scored.shape
            assert batch.targets.dtype == torch.long
            assert batch.targets.min() >= 0
            assert batch.targets.max() < (tokens if task.per == "place" else task.outputs)


@every_choice
def test_every_input_and_every_answer_occurs(choice: str) -> None:
    """Rows of the embedding or of the head that nothing trains would be a mistake in the task's numbers."""
    task = build(choice)
    length = min(40, task.longest or 40)
    batches = [draw(task, 500, length, seed) for seed in range(3)]
    unused = set(range(task.symbols)) - set(torch.cat([batch.inputs for batch in batches]).unique().tolist())
    assert len(unused) <= int(task.feeds_answers), unused  # the blank that stands where no answer is fed
    if task.goal == "classification" and task.per != "place":
        answers = torch.cat([batch.targets[batch.scored] for batch in batches]).unique()
        assert answers.tolist() == list(range(task.outputs))


@every_choice
def test_equal_generators_give_equal_data(choice: str) -> None:
    task = build(choice)
    length = lengths(task)[-1]
    one, two, other = (draw(task, 16, length, seed) for seed in (3, 3, 4))
    assert torch.equal(one.inputs, two.inputs)
    assert torch.equal(one.targets, two.targets)
    assert torch.equal(one.scored, two.scored)
    assert not torch.equal(one.inputs, other.inputs)
    state = torch.random.get_rng_state()
    generator = torch.Generator().manual_seed(3)
    first, second = task.sample(generator, 16, length), task.sample(generator, 16, length)
    assert torch.equal(first.inputs, one.inputs)
    assert not torch.equal(first.inputs, second.inputs)
    assert torch.equal(state, torch.random.get_rng_state()), "drawn from elsewhere than the generator"


@every_choice
def test_shortcuts_have_the_shape_of_scored(choice: str) -> None:
    task = build(choice)
    for length in lengths(task):
        batch = draw(task, 20, length)
        for name, feature in task.shortcuts(batch).items():
            assert name == name.strip() != ""
            assert feature.shape == batch.scored.shape, name
            assert feature.dtype == torch.long, name


@every_choice
def test_skills_are_declared(choice: str) -> None:
    task = build(choice)
    assert re.fullmatch(r"[A-Z].+\.", task.skill), "one sentence"
    assert task.expressed_by <= set(CLASSES)
    assert task.shortcut_window >= 0


@every_name
def test_default_lengths_are_possible(name: str) -> None:
    task = build(name)
    wanted = [task.train_length, *task.ood_lengths(task.train_length)]
    assert wanted == sorted(set(wanted))
    for length in wanted:
        assert task.shortest <= length <= (task.longest or length)
        assert draw(task, 2, length).inputs.shape == (2, task.tokens(length))
    tokens = [task.tokens(length) for length in range(task.shortest, task.shortest + 5)]
    assert tokens == sorted(set(tokens)), "longer problems take more tokens"


@every_choice
def test_tasks_are_equal_if_their_options_are(choice: str) -> None:
    one, two = build(choice), build(choice)
    assert one is not two
    assert one == two
    assert hash(one) == hash(two)
    others = [build(other) for other in CHOICES if other != choice]
    assert one not in others
    assert len({one, two, *others}) == len(CHOICES)


@every_name
def test_options_are_described(name: str) -> None:
    for option, field in TASKS.choices[name].model_fields.items():
        assert option == "name" or field.description, option
    assert all(p.kind is p.KEYWORD_ONLY for p in inspect.signature(TASKS[name]).parameters.values())


@every_name
def test_docstrings_have_a_worked_example(name: str) -> None:
    text = inspect.cleandoc(TASKS[name].__doc__ or "")
    summary, *rest = text.split("\n\n")
    assert "\n" not in summary
    worked = [part for part in rest if re.search(r"→|inputs", part)]
    assert worked, "no paragraph with `inputs … targets …` or `question → answer`"


@every_choice
def test_fed_answers_come_one_place_late(choice: str) -> None:
    task = build(choice)
    if not task.feeds_answers:
        return
    for length in lengths(task):
        batch = draw(task, 20, length)
        assert task.per == "token"
        assert batch.prompt > 0
        assert torch.equal(batch.inputs[:, batch.prompt :], batch.targets[:, batch.prompt - 1 : -1])
        assert batch.scored[:, batch.prompt - 1 :].all()
        assert not batch.scored[:, : batch.prompt - 1].any()


@every_choice
def test_right_answers_are_counted_as_right(choice: str) -> None:
    task = build(choice)
    batch = draw(task, 20, lengths(task)[-1])
    if task.goal == "regression":
        right, wrong = batch.targets, batch.targets + 1e6
    else:
        kinds = task.tokens(lengths(task)[-1]) if task.per == "place" else task.outputs
        right = torch.nn.functional.one_hot(batch.targets, kinds).float()
        wrong = -right
    assert task.correct(right, batch.targets).shape == batch.scored.shape
    assert task.correct(right, batch.targets).all()
    assert not task.correct(wrong, batch.targets).any()


@every_choice
def test_counted_answers_lie_beyond_where_that_is_asked(choice: str) -> None:
    task = build(choice)
    length = lengths(task)[-1]
    batch = draw(task, 4, length)
    counted = task.counted(batch, length // 2)
    if task.dense and task.per == "token":
        assert not counted[:, : length // 2].any()
        assert torch.equal(counted[:, length // 2 :], batch.scored[:, length // 2 :])
    else:
        assert torch.equal(counted, batch.scored)
    assert torch.equal(task.counted(batch, 0), batch.scored)


@pytest.mark.parametrize("name", TASKS.names())
def test_the_generators_version_identifies_runs_and_baselines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results on data of another version are neither reused nor compared. Audits and collections name a run's id."""
    run, choice = ArenaRun.read({"task": name}), TASKS.choose(name)
    before = run.id, baselines.key(choice, 32)
    monkeypatch.setattr(TASKS[name], "version", TASKS[name].version + 1)
    assert ArenaRun.read({"task": name}).id != before[0]
    assert baselines.key(choice, 32) != before[1]
