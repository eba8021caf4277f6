"""The short form of `make validate`: error rates of verdicts where the truth is known."""

from __future__ import annotations

import pytest

from tests import validation
from tests.validation import DESIGNS, DISAGREEMENTS, NULLS, disagreement, false_beats, redrawn
from whence import stats

LIMIT = 0.065


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", NULLS)
def test_false_winners_are_rare(name: str, design: stats.TestDesign) -> None:
    """At the numbers of seeds where discrete p-values come closest to 5 %."""
    for seeds, methods in ((6, 2), (8, 4)) if design == "fixed" else ((12, 2), (12, 4)):
        rate = false_beats(
            NULLS[name], seeds, methods, design, 1000 if name != "answers that depend on each other" else 500
        )
        assert rate.share <= 0.05 + 2 * (0.05 * 0.95 / rate.tables) ** 0.5, (seeds, methods, str(rate))


@pytest.mark.parametrize("design", DESIGNS)
def test_equal_predictors_on_redrawn_data_have_no_winner(design: stats.TestDesign) -> None:
    assert abs(float((lambda right: right[0].mean() - right[1].mean())(validation._predictors()))) < 0.01
    assert false_beats(redrawn, 7, 2, design, 1000).limit <= LIMIT


def test_the_validation_itself_can_fail() -> None:
    """A set that all seeds share is where false winners came from, and the simulation sees them."""

    def shared(rng, shape):
        scores = redrawn(rng, (shape[0], 2, 1))
        return scores + 0.001 * rng.standard_normal(shape)

    assert false_beats(shared, 7, 2, "fixed", 200).share > 0.5


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("case", DISAGREEMENTS, ids=lambda case: case.name)
def test_an_observed_failure_leaves_no_winner(case: validation.Disagreement, design: stats.TestDesign) -> None:
    for seeds, methods in ((10, 2), (20, 4)):
        _, despite, mixed = disagreement(case, seeds, methods, design, 300)
        assert despite.count == 0
        assert mixed.count > 0


@pytest.mark.slow
def test_all_cells_stay_below_the_limit() -> None:
    text = validation.document({2: 2000, 4: 2000, 13: 500})
    limit = float(text.split("largest upper limit: ")[1].split(" %")[0])
    assert limit <= 100 * LIMIT
