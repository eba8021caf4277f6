"""Numbers into words: against textbook values, and against simulations where the truth is known."""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from whence import stats
from whence.stats import fixed, sequential


def within_error(false: int, tables: int, alpha: float = 0.05) -> bool:
    return false / tables <= alpha + 2 * math.sqrt(alpha * (1 - alpha) / tables)


def test_wilson_against_the_formula() -> None:
    for correct, total in ((0, 10), (7, 10), (10, 10), (500, 1000)):
        p, z = correct / total, 1.959963984540054
        centre = (p + z * z / (2 * total)) / (1 + z * z / total)
        half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total**2))
        assert stats.wilson(correct, total) == pytest.approx((max(0, centre - half), min(1, centre + half)), abs=1e-9)
        theirs = scipy.stats.binomtest(correct, total).proportion_ci(method="wilson")
        assert stats.wilson(correct, total) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_p_above_is_the_exact_tail() -> None:
    tail = sum(math.comb(20, k) * 0.3**k * 0.7 ** (20 - k) for k in range(11, 21))
    assert stats.p_above([0.5, 0.6], 20, 0.3) == pytest.approx(tail)
    assert stats.p_above([0.5, 0.6], 20.9, 0.3) == pytest.approx(tail)
    assert stats.p_above([0.0], 20, 0.3) == 1.0
    assert stats.p_above([1.0], 20, 1.0) == 1.0
    assert stats.p_above([1.0], 20, 0.5) == pytest.approx(0.5**20)


def test_holm_against_a_worked_example() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9]) == [0.9]
    assert stats.holm([]) == []


def test_tables_of_nothing_seldom_claim_anything() -> None:
    """Twelve cells at their baseline: at most 5 % of such tables may call even one of them learned."""
    chance = random.Random(0)
    false = 0
    for _ in range(400):
        counts = [sum(chance.random() < 0.25 for _ in range(100)) for _ in range(12)]
        adjusted = stats.holm([stats.p_above([c / 100], 100, 0.25) for c in counts])
        false += any(stats.verdict(c / 100, p) != "at chance" for c, p in zip(counts, adjusted, strict=True))
    assert within_error(false, 400)


def test_seeds_with_evaluation_data_of_their_own_add_up() -> None:
    """Six seeds at the baseline seldom look learned, and six a little above it do more often than one."""
    rng = np.random.default_rng(1)
    false, six, one = 0, 0, 0
    for _ in range(400):
        at, above = (list(rng.binomial(300, p, 6) / 300) for p in (0.25, 0.29))
        false += stats.p_above(at, 6 * 300, 0.25) < 0.05
        six += stats.p_above(above, 6 * 300, 0.25) < 0.05
        one += stats.p_above(above[:1], 300, 0.25) < 0.05
    assert within_error(false, 400)
    assert six > 350 > 250 > one


def together(rng: np.random.Generator, sequences: int, answers: int, how: str) -> np.ndarray:
    """Right answers per sequence of a predictor at a baseline of 25 %."""
    if how == "whole":
        return answers * rng.binomial(1, 0.25, sequences)
    share = rng.beta(0.25 * 3, 0.75 * 3, sequences) if how == "beta" else np.full(sequences, 0.25)
    return rng.binomial(answers, share)


@pytest.mark.parametrize("how", ["independent", "beta", "whole"])
@pytest.mark.parametrize("sequences", [8, 24, 128])
@pytest.mark.parametrize("cells", [1, 12])
def test_answers_that_hang_together_are_not_new_evidence(how: str, sequences: int, cells: int) -> None:
    rng = np.random.default_rng([sequences, cells, len(how)])
    tables, answers = 1000 if cells == 1 else 400, 16
    false = counted = 0
    for _ in range(tables):
        adjusted, naive = [], []
        for _ in range(cells):
            right = together(rng, sequences, answers, how)
            correct, total = int(right.sum()), sequences * answers
            worth = stats.effective(
                correct=correct, total=total, sequences=sequences, squares=int((right.astype(int) ** 2).sum())
            )
            assert 1 <= worth <= total
            adjusted.append(stats.p_above([correct / total], worth, 0.25))
            naive.append(stats.p_above([correct / total], total, 0.25))
        false += min(stats.holm(adjusted)) < 0.05
        counted += min(stats.holm(naive)) < 0.05
    assert within_error(false, tables)
    assert within_error(counted, tables) == (how == "independent")


def test_effective_answers_at_the_ends() -> None:
    assert stats.effective(correct=40, total=100, sequences=100, squares=40) == 100
    assert stats.design_effect(correct=1600, total=6400, sequences=400, squares=100 * 256) == pytest.approx(16, abs=0.1)
    assert 380 < stats.effective(correct=1600, total=6400, sequences=400, squares=100 * 256) < 400
    assert stats.design_effect(correct=1600, total=6400, sequences=400, squares=6400) == 1  # more even than chance
    assert stats.effective(correct=3712, total=3712, sequences=128, squares=128 * 29**2) == 3712
    assert stats.effective(correct=3711, total=3712, sequences=128, squares=127 * 29**2 + 28**2) > 3600
    few = stats.effective(correct=64, total=64, sequences=4, squares=4 * 256)
    assert few <= 4
    assert stats.p_above([1.0], few, 0.5) > 0.05  # four whole sequences right by luck: one in sixteen
    assert stats.effective(correct=7, total=16, sequences=1, squares=49) == 1
    assert stats.effective(correct=0, total=3, sequences=1, squares=0) == 1
    for wrong in ({"squares": 2}, {"squares": 99}, {"sequences": 0}, {"sequences": 21}, {"correct": 21}):
        with pytest.raises(ValueError, match="expected consistent counts"):
            stats.design_effect(**{"correct": 9, "total": 20, "sequences": 4, "squares": 30} | wrong)


def test_lengths_are_pooled_as_strata() -> None:
    assert stats.pooled([(100, 100), (300, 300)]) == 400
    assert stats.pooled([(100, 50), (300, 150)]) == pytest.approx(200)
    rng = np.random.default_rng(0)
    short, long = together(rng, 2000, 32, "beta"), together(rng, 2000, 96, "beta")
    parts = [
        (n * 2000, stats.effective(correct=int(x.sum()), total=n * 2000, sequences=2000, squares=int((x**2).sum())))
        for x, n in ((short, 32), (long, 96))
    ]
    truth = [1 + (n - 1) / 4 for n in (32, 96)]  # intraclass correlation 1 / (3 + 1)
    assert stats.pooled(parts) == pytest.approx(128 * 2000 / (truth[0] / 4 + truth[1] * 3 / 4), rel=0.1)


def test_intervals_show_both_the_set_and_the_seeds() -> None:
    low, high = stats.over_seeds([1.0, 1.0, 0.1], 3712)
    assert low < 0.2
    assert high > 0.99
    alike = stats.over_seeds([0.5, 0.5, 0.5], 100)
    assert alike == pytest.approx(stats.wilson(50, 100))
    assert stats.over_seeds([0.5, 0.5], 50.5)[0] < alike[0]


def test_verdicts() -> None:
    assert stats.verdict(0.999, 0.2) == "at chance"
    assert stats.verdict(0.6, 0.001) == "learning"
    assert stats.verdict(0.99, 0.001) == "solved"


def test_cells_at_chance_are_never_ranked() -> None:
    verdicts = {"rope": "solved", "none": "at chance", "t5": "learning", "xpos": "not learned", "fire": "failed"}
    assert stats.rankable(verdicts) == ["rope", "t5"]
    assert stats.rankable({}) == []


def test_scores_across_tasks() -> None:
    rng = np.random.default_rng(0)
    for n in (4, 8, 20):
        values = list(rng.random(n))
        assert stats.iqm(values) == pytest.approx(scipy.stats.trim_mean(values, 0.25))
    assert stats.iqm([0.3]) == pytest.approx(0.3)
    assert stats.iqm([0, 1]) == pytest.approx(0.5)
    assert stats.iqm([9, 0, 1]) == pytest.approx((0.25 * 0 + 1 + 0.25 * 9) / 1.5)
    assert stats.iqm([0, 1, 2, 3, 40]) == pytest.approx((0.75 * 1 + 2 + 0.75 * 3) / 2.5)
    assert stats.normalised(0.25, 0.25) == 0
    assert stats.normalised(1.0, 0.25) == 1
    assert stats.normalised(0.1, 0.25) == pytest.approx(-0.2)
    with pytest.raises(ValueError, match="baseline"):
        stats.normalised(1.0, 1.0)
    with pytest.raises(ValueError, match="at least one value"):
        stats.iqm([])
    assert stats.solve_rate([0.99, 0.5, 1.0, 0.989]) == 0.5


def lone(
    a: Sequence[float], b: Sequence[float], *, metric: stats.Metric = stats.ACCURACY, design: stats.TestDesign = "fixed"
) -> stats.Comparison:
    scores = {"a": dict(enumerate(a)), "b": dict(enumerate(b))}
    (comparison,) = stats.compare([stats.pair(metric, "a", "b", scores)], design=design)
    return comparison


def every_pair(
    scores: dict[str, list[float]], *, design: stats.TestDesign = "fixed"
) -> dict[tuple[str, str], stats.Comparison]:
    by_seed = {name: dict(enumerate(values)) for name, values in scores.items()}
    pairs = [stats.pair(stats.ACCURACY, a, b, by_seed) for a, b in stats.all_pairs(scores)]
    return {(c.a, c.b): c for c in stats.compare(pairs, design=design)}


def test_a_lone_pair_against_scipy() -> None:
    rng = np.random.default_rng(0)
    for n in (6, 9, 14, 31):
        for digits in (1, 6):  # one digit makes equal scores
            a, b = rng.random((2, n)).round(digits)
            d = a - b
            c = lone(list(a), list(b))
            wins, losses = int((d > 1e-12).sum()), int((d < -1e-12).sum())
            assert (c.wins, c.losses, c.n) == (wins, losses, n)
            assert c.p == pytest.approx(scipy.stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0)
            assert c.difference == pytest.approx(d.mean())
            interval = scipy.stats.ttest_rel(a, b).confidence_interval(0.95)
            assert c.interval == pytest.approx((max(interval.low, -1), min(interval.high, 1)), abs=1e-9)


def test_holm_of_a_family_against_plain_code() -> None:
    rng = np.random.default_rng(1)
    scores = {name: list(rng.random(9) + lead) for name, lead in zip("abcd", (0, 0, 0.3, 0.9), strict=True)}
    found = every_pair(scores)
    raw = {
        pair: scipy.stats.binomtest(sum(x > y for x, y in zip(scores[pair[0]], scores[pair[1]], strict=True)), 9).pvalue
        for pair in found
    }
    running = 0.0
    for rank, pair in enumerate(sorted(raw, key=lambda pair: raw[pair])):
        running = max(running, min(1.0, raw[pair] * (len(raw) - rank)))
        assert found[pair].p == pytest.approx(running)
        assert found[pair].family == 6


@pytest.mark.parametrize("design", ["fixed", "sequential"])
@pytest.mark.parametrize("comparisons", [1, 3, 6, 12, 25, 78])
def test_seeds_needed_is_what_a_clear_winner_needs(design: stats.TestDesign, comparisons: int) -> None:
    """One pair is clear, all others are even, which is what makes a family expensive."""
    needed = stats.seeds_needed(comparisons, design=design)
    for n in (needed - 1, needed):
        clear = stats.Pair("a", "b", stats.ACCURACY, (0.5,) * n)
        even = stats.Pair("c", "d", stats.ACCURACY, tuple(0.5 * (-1) ** s for s in range(n)))
        found = stats.compare([clear] + [even] * (comparisons - 1), design=design)
        assert (found[0].winner == "a") == (n == needed), (n, found[0])
        assert all(c.winner is None for c in found[1:])


def test_seeds_needed_for_the_families_that_the_docs_name() -> None:
    assert [stats.seeds_needed(n) for n in (1, 6, 12, 25)] == [6, 8, 9, 10]


def test_below_six_seeds_everything_is_exploratory() -> None:
    for design in ("fixed", "sequential"):
        for n in range(1, 6):
            c = lone([1.0] * n, [0.0] * n, design=design)
            assert (c.verdict, c.winner, c.decided) == ("exploratory", None, False)
            assert (c.interval is None) == (n < 3), "two seeds make no interval"
    assert stats.compare([]) == []


def test_intervals_stay_within_what_is_possible() -> None:
    """Two comparisons of two seeds once printed a difference of 26.8 points, [-239.5, 293.2]."""
    c = lone([0.9, 0.5, 0.1], [0.2, 0.6, 0.9])
    assert c.interval is not None
    assert -1 <= c.interval[0] <= c.interval[1] <= 1
    assert lone([0.9, 0.5], [0.2, 0.6]).interval is None


def test_ties_need_seeds_and_closeness() -> None:
    base = [0.5, 0.6, 0.7, 0.8, 0.9, 0.55]
    near = [x + d for x, d in zip(base, (0.001, -0.002, 0.0, 0.003, -0.001, 0.0), strict=True)]
    assert lone(base, near).verdict == "tied"
    assert lone(base, base).verdict == "tied"
    far = [x + d for x, d in zip(base, (0.1, -0.1, 0.1, -0.1, 0.1, -0.1), strict=True)]
    assert lone(base, far).verdict == "undecided"
    ahead = lone([x + 0.001 * (1 + i) for i, x in enumerate(base)], base)
    assert ahead.p == pytest.approx(2 / 64)
    assert ahead.verdict == "tied", "a difference that is certain and does not matter makes no winner"


def test_the_tie_margin_is_the_metrics() -> None:
    psnr = [30.0, 31.0, 29.0, 30.5, 30.2, 29.7]
    assert lone([x + 0.15 for x in psnr], psnr, metric=stats.PSNR).verdict == "tied"
    assert lone([x + 0.25 for x in psnr], psnr, metric=stats.PSNR).verdict == "a beats b"
    fvu = [0.2, 0.21, 0.19, 0.2, 0.22, 0.2]
    assert lone([x * 0.99 for x in fvu], fvu, metric=stats.FVU).verdict == "tied"
    assert lone([x * 0.95 for x in fvu], fvu, metric=stats.FVU).winner == "a", "lower is better"
    assert lone([x * 1.05 for x in fvu], fvu, metric=stats.FVU).winner == "b"
    assert lone([x + 0.1 for x in psnr], psnr, metric=stats.LOSS).winner == "b"


def test_metrics_refuse_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="finite"):
        lone([math.nan] * 6, [0.0] * 6)
    with pytest.raises(ValueError, match="positive"):
        lone([0.0] * 6, [0.1] * 6, metric=stats.FVU)


def test_where_median_and_mean_disagree_nobody_wins() -> None:
    """Steady .9 against 1.0 with rare failures: better in 12 of 14 seeds, worse on average."""
    steady, rare = [0.9] * 14, [1.0] * 12 + [0.0] * 2
    for design in ("fixed", "sequential"):
        c = lone(rare, steady, design=design)
        assert (c.verdict, c.winner, c.leader, c.decided) == ("mixed", None, "a", True)
        assert "a better in 12 of 14 seeds" in stats.sentence(c)
        assert "worse on average by 4.3 points: rare failures" in stats.sentence(c)
    unlucky = lone([1.0] * 13 + [0.0], [0.9] * 14)
    assert unlucky.verdict == "undecided", "better on average, but the interval of the mean includes 0"


SCORES = st.lists(st.tuples(*[st.sampled_from([0.0, 0.1, 0.5, 0.7, 0.9, 0.95, 1.0])] * 2), min_size=6, max_size=30)


@pytest.mark.parametrize("design", ["fixed", "sequential"])
@given(scores=SCORES)
@settings(max_examples=300, deadline=None)
def test_no_verdict_names_the_side_with_the_worse_mean(
    design: stats.TestDesign, scores: list[tuple[float, float]]
) -> None:
    a, b = ([pair[i] for pair in scores] for i in (0, 1))
    for n in range(6, len(scores) + 1):
        c = lone(a[:n], b[:n], design=design)
        if c.winner:
            better, worse = (a, b) if c.winner == "a" else (b, a)
            assert sum(better[:n]) > sum(worse[:n])
            assert sum(x > y for x, y in zip(better[:n], worse[:n], strict=True)) > n / 2 - sum(
                x == y for x, y in zip(a[:n], b[:n], strict=True)
            )
            assert c.interval is not None
            assert c.interval[0] > 0 or c.interval[1] < 0
        turned = lone(b[:n], a[:n], design=design)
        assert turned.winner == {"a": "b", "b": "a", None: None}[c.winner], "names do not matter"
        assert turned.verdict == {"a beats b": "b beats a", "b beats a": "a beats b"}.get(c.verdict, c.verdict)


def test_each_pair_is_compared_over_its_own_seeds() -> None:
    scores = {"a": dict.fromkeys(range(9), 0.9), "b": dict.fromkeys(range(2, 12), 0.5), "c": {}}
    found = stats.compare([stats.pair(stats.ACCURACY, x, y, scores) for x, y in stats.all_pairs(scores)])
    assert [c.n for c in found] == [7, 0, 0]
    assert (found[0].wins, found[0].verdict, found[1].verdict) == (7, "a beats b", "exploratory")


def test_failures_count_against_the_method_that_failed() -> None:
    scores = {"a": dict.fromkeys(range(6), 0.9), "b": dict.fromkeys(range(20), 0.8)}
    for design in ("fixed", "sequential"):
        failing = stats.pair(stats.ACCURACY, "a", "b", scores, failed={"a": range(6, 20)})
        (c,) = stats.compare([failing], design=design)
        assert (c.n, c.wins, c.losses, c.failures) == (20, 6, 14, 14)
        assert c.winner is None
        assert c.difference == pytest.approx(0.1), "failures enter no mean"
        once = stats.pair(
            stats.ACCURACY, "a", "b", {"a": dict.fromkeys(range(19), 0.9), "b": scores["b"]}, failed={"a": [19]}
        )
        (c,) = stats.compare([once], design=design)
        assert (c.verdict, c.leader) == ("mixed", "a")
        assert "one of the two failed on 1 seed" in stats.sentence(c)
        rival = stats.pair(
            stats.ACCURACY, "b", "a", {"b": scores["b"], "a": dict.fromkeys(range(6, 20), 0.5)}, failed={"a": range(6)}
        )
        (c,) = stats.compare([rival], design=design)
        assert c.winner == "b"
        assert "with 6 failed runs counted as losses" in stats.sentence(c)
        both = stats.pair(stats.ACCURACY, "a", "b", scores, failed={"a": range(6, 20), "b": range(6, 20)})
        assert len(both.advantages) == 6, "both failed: no evidence"


def test_equal_scores_are_reported_beside_wins() -> None:
    (c,) = stats.compare([stats.Pair("a", "b", stats.ACCURACY, (0.5,) * 6 + (0.0,) * 14)])
    assert c.winner == "a"
    assert "better in 6 and equal in 14 of 20 seeds" in stats.sentence(c)


def test_e_values_of_signs_are_what_a_bettor_gains() -> None:
    """Against the beta integral, and fair: their mean under a fair coin is 1."""
    for ahead, behind in itertools.product(range(6), range(6)):
        n = ahead + behind
        integral = 2**n * math.exp(math.lgamma(ahead + 1) + math.lgamma(behind + 1) - math.lgamma(n + 2))
        assert sequential.wealth(np.array(ahead), np.array(behind)) == pytest.approx(integral)
    for n in (1, 5, 12):
        fair = (
            sum(math.comb(n, k) * float(sequential.wealth(np.array(k), np.array(n - k))) for k in range(n + 1)) / 2**n
        )
        assert fair == pytest.approx(1)


def test_adjusted_e_values_against_all_subsets() -> None:
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 2, (5, 3))
    found = sequential.averaged(values)
    for pair, look in itertools.product(range(5), range(3)):
        sets = [subset for size in range(1, 6) for subset in itertools.combinations(range(5), size) if pair in subset]
        assert found[pair, look] == pytest.approx(min(np.mean([values[i, look] for i in s]) for s in sets))


def test_alpha_spent_on_intervals_adds_up() -> None:
    n = np.arange(6, 100_000)
    assert 0.0499 < sequential.spent(n, 0.05).sum() <= 0.05


def test_a_sequential_verdict_knows_since_when_it_holds() -> None:
    a, b = [0.9] * 20, [0.5 - 0.01 * (s % 3) for s in range(20)]
    c = lone(a, b, design="sequential")
    assert (c.winner, c.decided_at) == ("a", 8)
    tied = lone([0.5 + 0.001 * (-1) ** s for s in range(20)], [0.5] * 20, design="sequential")
    assert (tied.verdict, tied.decided_at) == ("tied", 6)
    open_ = lone([0.5 + 0.1 * (-1) ** s for s in range(20)], [0.5] * 20, design="sequential")
    assert (open_.verdict, open_.decided_at) == ("undecided", None)


def test_simulated_tables_and_single_ones_go_through_the_same_code() -> None:
    rng = np.random.default_rng(2)
    many = rng.normal(0.02, 0.05, (40, 6, 9))
    margins = np.full(6, 0.02)
    for decide in (fixed.decide, sequential.decide):
        together_ = decide(many, margins, 0.05)
        for i, table in enumerate(many):
            alone = decide(table, margins, 0.05)
            assert (alone.verdict == together_.verdict[i]).all()
            assert alone.value == pytest.approx(together_.value[i])


def test_words() -> None:
    assert (
        stats.sentence(
            stats.compare(
                [
                    stats.Pair(
                        "rope",
                        "alibi",
                        stats.ACCURACY,
                        (0.4, 0.401, 0.399, 0.4, 0.401, 0.399, 0.4, 0.401, 0.399),
                        part="id",
                    )
                ]
            )[0]
        )
        == "rope beats alibi in distribution by 40.0 points [39.9, 40.1] (better in 9 of 9 seeds, p = .004)"
    )
    held_out = stats.Pair("a", "b", stats.PSNR, (1.0,) * 6, on="these held-out pictures")
    assert stats.sentence(stats.compare([held_out])[0]).startswith("a beats b on these held-out pictures by 1.00 dB")
    shared = stats.Pair("a", "b", stats.ACCURACY, (0.5,) * 6, on="this test set")
    assert "on this test set" in stats.sentence(stats.compare([shared])[0])
    note = stats.plan_note(3, 12)
    assert "12 comparisons in one table need at least 9 paired seeds" in note
    assert "3 planned, so the results will be exploratory" in note
    assert "exploratory" not in stats.plan_note(9, 12)
    assert stats.plan_note(9, 1).startswith("1 comparison in one table needs at least 6 paired seeds")
    assert stats.heading(3, 12, [stats.ACCURACY]).startswith(
        "exploratory: 3 paired seeds, 9 are needed for a verdict on 12 comparisons"
    )
    assert "no winner is possible below 9 seeds" in stats.heading(7, 12, [stats.ACCURACY])
    assert "±2 points and ±0.2 dB" in stats.heading(9, 12, [stats.ACCURACY, stats.PSNR])


def conclusion(**advantages: float) -> str:
    """Of pairs written as `a_b`, each with the same advantage on all of nine seeds."""
    pairs = [
        stats.Pair(*name.split("_")[:2], stats.ACCURACY, (value,) * 9, part=name.split("_")[2])
        for name, value in advantages.items()
    ]
    return stats.conclusion(stats.compare(pairs))


def test_a_conclusion_names_winners_ties_and_open_comparisons() -> None:
    assert conclusion(a_b_id=0.3, a_c_id=0.3, b_c_id=0.0) == "In distribution, a beats b and c, b and c are tied"
    both = conclusion(a_b_id=0.001, b_a_ood=0.3)
    assert both == "In distribution, a and b are tied; out of distribution, b beats a"
    shared = conclusion(a_b_id=0.3, c_b_id=0.3, a_c_id=0.0)
    assert shared == "In distribution, a and c beat b, a and c are tied"
    many = {f"a_{other}_id": 0.3 for other in "bcdefg"}
    assert conclusion(**many) == "In distribution, a beats 6 others"
    uneven = stats.Pair("a", "b", stats.FVU, (0.3, -0.3) * 4, on="these held-out texts")
    text = stats.conclusion(stats.compare([uneven]))
    assert text == "By FVU on these held-out texts, the comparison of a and b is undecided"
    assert stats.conclusion([]) == ""


def test_a_conclusion_below_six_seeds_is_exploratory_and_has_no_winner() -> None:
    few = [
        stats.Pair(a, b, stats.ACCURACY, (value,) * 2, part="id")
        for a, b, value in (("a", "b", 0.3), ("a", "c", 0.1), ("b", "c", -0.2))
    ]
    needed = stats.seeds_needed(3)
    text = stats.conclusion(stats.compare(few))
    assert text == (
        f"Exploratory, 2 paired seeds (a verdict needs at least {needed}): in distribution, a has the best observed "
        "mean, 10.0 points ahead of c"
    )
    control = [few[0], stats.Pair("d", "a", stats.ACCURACY, (0.4, 0.4), part="id")]
    assert "the largest observed difference is 40.0 points (d ahead of a)" in stats.conclusion(stats.compare(control))
    equal = [stats.Pair("a", "b", stats.ACCURACY, (0.0, 0.0), part="id")]
    assert "a and b have the best observed mean" in stats.conclusion(stats.compare(equal))
    level = [*equal, stats.Pair("a", "c", stats.ACCURACY, (0.2, 0.2), part="id")]
    assert "a and b have the best observed mean" in stats.conclusion(stats.compare(level))


def test_a_conclusion_compares_no_means_where_runs_diverged() -> None:
    lost = stats.Pair("a", "b", stats.ACCURACY, (float("inf"), 0.1), part="id")
    assert stats.conclusion(stats.compare([lost])).endswith("1 pair with diverged runs is left out")
    whole = stats.Pair("a", "c", stats.ACCURACY, (0.1, 0.1), part="id")
    text = stats.conclusion(stats.compare([lost, whole]))
    assert text.endswith("a has the best observed mean, 10.0 points ahead of c (1 pair with diverged runs is left out)")


def _written(path: Path) -> list[str]:
    """Strings of a module that may reach a user: all but docstrings."""
    tree = ast.parse(path.read_text())
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [str(node.value) for node in constants if id(node) not in documents | bare]


def test_only_stats_writes_verdicts(source: Path) -> None:
    """Of comparisons; an audit has verdicts on one model, one of which is that it cannot decide."""
    words = re.compile(r"\b(beats|beat|tied|statistically|significantly)\b|: (mixed|undecided)\b")
    package = source / "whence"
    guilty = {
        str(path.relative_to(package)): text
        for path in package.rglob("*.py")
        if path.parent.name != "stats"
        for text in _written(path)
        if words.search(text)
    }
    assert not guilty
    assert any(words.search(text) for text in _written(package / "stats" / "wording.py")), "the test sees nothing"
