"""Finding a pattern needs order and adjacency together: baselines with one of the two are at chance."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from whence.tasks import TASKS

SEQUENCES = 24_000
CONDITIONS = [(2, 1, 5), (2, 2, 16), (3, 1, 7), (3, 2, 8), (3, 2, 32), (3, 5, 64), (4, 3, 24), (6, 2, 32)]
conditions = pytest.mark.parametrize(("pattern", "slack", "length"), CONDITIONS)


def draw(pattern: int, slack: int, length: int) -> tuple[Tensor, Tensor]:
    task = TASKS.choose(f"shift_invariant_pattern:pattern={pattern},slack={slack}").build()
    batch = task.sample(torch.Generator().manual_seed(length), SEQUENCES, length)
    return batch.inputs, batch.targets


def is_chance(score: float) -> bool:
    """Within three standard errors of a coin, on the half that was not learned from."""
    return abs(score - 0.5) < 3 * 0.5 / math.sqrt(SEQUENCES / 2)


def by_table(features: Tensor, answers: Tensor) -> float:
    """The commonest answer to each combination of features, learned on one half and scored on the other."""
    half = len(features) // 2
    rows = features.reshape(len(features), -1)
    names = torch.randint(2**48, rows.shape[1:], generator=torch.Generator().manual_seed(0))
    values, which = (rows * names).sum(1).unique(return_inverse=True)  # one number for each combination
    seen = [which[:half][answers[:half] == answer].bincount(minlength=len(values)) for answer in (0, 1)]
    lean = (seen[1] - seen[0]).sign()[which[half:]]  # 0: never seen, or as often one as the other
    return (0.5 + 0.5 * lean * (2 * answers[half:] - 1)).mean().item()


def by_line(features: Tensor, answers: Tensor) -> float:
    """A linear classifier: ridge regression on one half, scored on the other."""
    half = len(features) // 2
    design = torch.cat([features.double(), torch.ones(len(features), 1, dtype=torch.double)], 1)
    learn, signs = design[:half], 2.0 * answers[:half].double() - 1
    penalty = 1e-3 * torch.eye(design.shape[1], dtype=torch.double)
    weights = torch.linalg.solve(learn.T @ learn + penalty, learn.T @ signs)
    return ((design[half:] @ weights > 0) == (answers[half:] == 1)).double().mean().item()


def places_of(inputs: Tensor, symbol: int) -> Tensor:
    """Where the symbol stands: (sequences, 2), earlier first."""
    return (inputs == symbol).nonzero()[:, 1].reshape(len(inputs), 2)


@conditions
def test_a_bag_of_tokens_is_at_chance(pattern: int, slack: int, length: int) -> None:
    inputs, answers = draw(pattern, slack, length)
    counts = torch.nn.functional.one_hot(inputs).sum(1)
    assert (counts[:, :pattern] == 2).all(), "every sequence holds every symbol of the pattern twice"
    assert is_chance(by_line(counts, answers))
    assert is_chance(by_table(counts[:, :pattern], answers))
    assert is_chance(by_table(counts.argmax(1), answers))


@conditions
def test_somewhere_before_is_at_chance(pattern: int, slack: int, length: int) -> None:
    """All that can be said of the order of all pairs of the pattern's symbols, without saying how far apart."""
    inputs, answers = draw(pattern, slack, length)
    places = [places_of(inputs, symbol) for symbol in range(pattern)]
    features: list[Tensor] = []
    for a, b in itertools.permutations(range(pattern), 2):
        before = places[a][:, :, None] < places[b][:, None, :]
        count = before.sum((1, 2))
        features += [(count > 0).long(), count, before[:, 0, 0].long(), before[:, 1, 1].long()]
        for feature in features[-4:]:
            assert is_chance(by_table(feature, answers)), (a, b)
    together = torch.stack(features, 1)
    assert is_chance(by_line(together, answers))
    assert is_chance(by_table(together, answers))


@conditions
def test_adjacency_without_order_is_at_chance(pattern: int, slack: int, length: int) -> None:
    """How the pattern's symbols are spread, whichever they are."""
    inputs, answers = draw(pattern, slack, length)
    anywhere = (inputs < pattern).long()
    spread = anywhere.nonzero()[:, 1].reshape(len(inputs), 2 * pattern)
    assert is_chance(by_table(spread.diff(dim=1).clamp(max=slack + 3), answers))
    assert is_chance(by_line(anywhere, answers))


@conditions
def test_who_stands_beside_whom_is_at_chance(pattern: int, slack: int, length: int) -> None:
    """How often each two of the pattern's symbols are neighbours, in whichever order."""
    inputs, answers = draw(pattern, slack, length)
    one, other = inputs[:, :-1], inputs[:, 1:]
    pairs = [
        (((one == a) & (other == b)) | ((one == b) & (other == a))).sum(1).clamp(max=2)
        for a in range(pattern)
        for b in range(a + 1, pattern)
    ]
    assert is_chance(by_table(torch.stack(pairs, 1), answers))


@conditions
def test_order_and_adjacency_together_solve_it(pattern: int, slack: int, length: int) -> None:
    inputs, answers = draw(pattern, slack, length)
    chain = inputs == 0
    for symbol in range(1, pattern):
        chain = torch.cat([torch.zeros_like(chain[:, :1]), chain[:, :-1]], 1) & (inputs == symbol)
    assert torch.equal(chain.any(1), answers == 1)
    assert abs(answers.double().mean().item() - 0.5) < 3 * 0.5 / math.sqrt(SEQUENCES)


def test_location_is_not_told_by_the_last_symbol_alone() -> None:
    task = TASKS.choose("shift_invariant_pattern:ask=location").build()
    batch = task.sample(torch.Generator().manual_seed(0), SEQUENCES, 32)
    places = (batch.inputs == 2).nonzero()[:, 1].reshape(SEQUENCES, 3)
    for which, name in ((0, "the last symbol's first place"), (-1, "the last symbol's last place")):
        share = (places[:, which] == batch.targets[:, 0]).double().mean().item()
        assert share == pytest.approx(task.floors(32)[name], abs=0.02)
        assert share < 0.4


def test_location_is_not_told_by_density_or_by_order_alone() -> None:
    """Two groups are dense, two are in order, one is both."""
    task = TASKS.choose("shift_invariant_pattern:ask=location").build()
    batch = task.sample(torch.Generator().manual_seed(1), 500, 32)
    for row, (target,) in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        dense = [end for end in range(2, 32) if sorted(row[end - 2 : end + 1]) == [0, 1, 2]]
        assert len(dense) >= 2  # more where a group with gaps begins right behind a dense one
        assert target in dense
        marks = [(place, symbol) for place, symbol in enumerate(row) if symbol < 3]
        groups = [marks[i : i + 3] for i in (0, 3, 6)]
        in_order = [group[-1][0] for group in groups if [symbol for _, symbol in group] == [0, 1, 2]]
        assert len(in_order) == 2
        assert target in in_order
