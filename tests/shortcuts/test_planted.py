"""The search finds what was planted, names its class, and finds nothing where nothing was planted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.shortcuts.planted import LENGTH, PLANTED, LeakedBigram, LeakedCounts, Planted
from whence.shortcuts.search import SOLVED, ShortcutScore, best, search

SAMPLES = 1000


def best_per_class(scores: list[ShortcutScore]) -> dict[str, ShortcutScore]:
    classes: dict[str, ShortcutScore] = {}
    for score in scores:
        classes.setdefault(score.feature_class, score)
    return classes


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.__name__)
def test_planted_shortcuts_are_found(planted: type[Planted]) -> None:
    scores = search(planted(), LENGTH, samples=SAMPLES)
    classes = best_per_class(scores)
    for name in PLANTED[planted]:
        assert classes[name].accuracy > 0.97, (name, classes[name])
    assert best(scores).accuracy > 0.97
    assert best(scores).interval[1] >= best(scores).accuracy >= best(scores).interval[0]


def test_some_leaks_are_seen_by_their_own_class_only() -> None:
    """The names mean something: a bigram leak is not reported as a leak of counts, nor of sums."""
    classes = best_per_class(search(LeakedBigram(), LENGTH, samples=SAMPLES))
    for name in ("majority", "counts", "variety", "window sums"):
        assert classes[name].accuracy < 0.7, classes[name]
    assert classes["bigrams"].accuracy > SOLVED


class Noise(Planted):
    """The label has nothing to do with the tokens."""

    def plant(self, inputs: Tensor, labels: Tensor, places: Tensor) -> None:
        return


def test_nothing_is_found_where_nothing_is() -> None:
    """Held-out accuracy: the best of many predictors exceeds chance by the luck of a maximum, not more."""
    assert best(search(Noise(), LENGTH, samples=SAMPLES)).accuracy < 0.5 + 4 * 0.5 / SAMPLES**0.5


def test_classes_that_express_the_skill_do_not_count() -> None:
    class Counting(LeakedCounts):
        skill = "Count."
        expressed_by = frozenset(
            {"counts", "bigrams", "trigrams", "skip-pairs", "regions", "order", "one-hots", "variety"}
        )

    plain, counting = (search(task(), LENGTH, samples=500) for task in (LeakedCounts, Counting))
    assert best(plain).accuracy > SOLVED
    assert not any(score.expresses_skill for score in plain if score.feature_class == "counts")
    assert all(score.expresses_skill for score in counting if score.feature_class in Counting.expressed_by)
    assert best(counting).feature_class not in Counting.expressed_by
    assert {score.feature_class for score in plain} == {score.feature_class for score in counting}


def test_equal_searches_are_equal() -> None:
    state = torch.random.get_rng_state()
    one, two = (search(LeakedBigram(), LENGTH, samples=300) for _ in range(2))
    assert one == two
    assert torch.equal(state, torch.random.get_rng_state())
