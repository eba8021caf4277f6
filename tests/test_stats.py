"""Numbers into words: against textbook values, and against simulations where the truth is known."""

from __future__ import annotations

import math
import random

import pytest

from whence import stats


def test_wilson_against_the_formula() -> None:
    for correct, total in ((0, 10), (7, 10), (10, 10), (500, 1000)):
        p, z = correct / total, 1.959963984540054
        centre = (p + z * z / (2 * total)) / (1 + z * z / total)
        half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total**2))
        assert stats.wilson(correct, total) == pytest.approx((max(0, centre - half), min(1, centre + half)), abs=1e-9)


def test_p_above_is_the_exact_tail() -> None:
    tail = sum(math.comb(20, k) * 0.3**k * 0.7 ** (20 - k) for k in range(11, 21))
    assert stats.p_above([0.5, 0.6], 20, 0.3) == pytest.approx(tail)
    assert stats.p_above([0.0], 20, 0.3) == 1.0


def test_holm_against_a_worked_example() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9]) == [0.9]
    assert stats.holm([]) == []


def test_tables_of_nothing_seldom_claim_anything() -> None:
    """Twelve cells at their floor: at most 5 % of such tables may call even one of them learned."""
    chance = random.Random(0)
    false = 0
    for _ in range(400):
        counts = [sum(chance.random() < 0.25 for _ in range(100)) for _ in range(12)]
        adjusted = stats.holm([stats.p_above([c / 100], 100, 0.25) for c in counts])
        false += any(stats.verdict(c / 100, p) != "at chance" for c, p in zip(counts, adjusted, strict=True))
    assert false / 400 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


def test_seeds_that_share_an_evaluation_set_are_not_new_evidence() -> None:
    """A predictor at its floor that answers alike under six seeds must not look six times as sure."""
    chance = random.Random(1)
    false = 0
    for _ in range(400):
        accuracy = sum(chance.random() < 0.25 for _ in range(300)) / 300
        false += stats.p_above([accuracy] * 6, 300, 0.25) < 0.05
    assert false / 400 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


def test_intervals_show_both_the_set_and_the_seeds() -> None:
    low, high = stats.over_seeds([1.0, 1.0, 0.1], 3712)
    assert low < 0.2
    assert high > 0.99
    alike = stats.over_seeds([0.5, 0.5, 0.5], 100)
    assert alike == pytest.approx(stats.wilson(50, 100))


def test_verdicts() -> None:
    assert stats.verdict(0.999, 0.2) == "at chance"
    assert stats.verdict(0.6, 0.001) == "learning"
    assert stats.verdict(0.99, 0.001) == "solved"
    assert "exploratory" in stats.heading(3)
    assert "3 paired seeds" in stats.heading(3)
    assert "exploratory" not in stats.heading(6)
