"""What is said of mitigations, on tables whose numbers are made up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import traces, untested
from whence.experiments.page import table_html
from whence.experiments.results import RunResult
from whence.experiments.table import Row, Table
from whence.leak.config import LeakConfig
from whence.leak.findings import cost
from whence.leak.instrument import LEAK
from whence.leak.metrics import MASK_RATIOS, LeakMetrics, PositionProbe, RatioMetrics, ShiftTest
from whence.leak.run import LeakRun
from whence.store.runs import Store


def measures(
    *, error: float = 0.6, shift: float = 0.0, variance: float = 0.0, r: float | None = None, **more: Any
) -> RatioMetrics:
    """At every mask ratio. r: correlation with position; best: R² of the probe; without_prior: with other numbers."""
    without_prior = more.get("without_prior")
    return RatioMetrics(
        error=error,
        position_variance=variance,
        position_variance_limit=0.0,
        identical=variance == 0,
        correlation=r,
        correlation_chance=0.2,
        correlation_target=None,
        similarity=0.9,
        similarity_centered=None,
        eta2=None,
        eta2_target=None,
        probe=PositionProbe(r2=0.1, mae=1.0, best=more.get("best", 0.1), shape="linear", control=0.0, p=0.5),
        shift=ShiftTest(sensitivity=shift, over_target=shift, limit=0.0, placements={}, prediction_std=1.0),
        without_prior=measures(**without_prior) if without_prior is not None else None,
    )


def finished(seed: int, metrics: RatioMetrics) -> RunResult[LeakRun]:
    document = LeakMetrics(headline={}, ratios=dict.fromkeys(MASK_RATIOS, metrics)).model_dump(mode="json")
    return RunResult(LeakRun(seed=seed), "finished", metrics=document)


def row(name: str, **numbers: Any) -> Row[LeakRun]:
    """One mitigation over six seeds."""
    return Row(name, tuple(finished(seed, measures(**numbers)) for seed in range(6)))


def table(*rows: Row[LeakRun]) -> Table[LeakRun]:
    return untested(LEAK, "made up", rows)


def verdict(one: Row[LeakRun]) -> str:
    return table(one).rows[0].cell("verdict").verdict


LEAKY = row("none", shift=0.3, variance=0.2, r=0.7, best=0.9)
CLEAN = row("none")


@pytest.mark.parametrize(
    ("reference", "mitigated", "expected", "words"),
    [
        (LEAKY, row("a"), "clean", "a: removes the leak"),
        (CLEAN, row("a"), "clean", "a: no leak"),
        (
            LEAKY,
            row("a", shift=0.2, variance=0.01, r=0.7),
            "leaky",
            "1.0 % instead of 20.0 %) without removing it",
        ),
        (
            LEAKY,
            row("a", shift=0.2, variance=0.15, r=0.1, best=0.8),
            "leaky",
            "removes only the linear part",
        ),
        (LEAKY, row("a", shift=0.2, variance=0.15, r=0.7), "leaky", "does not remove the leak"),
        (LEAKY, row("a", shift=1e-6, variance=1e-6, r=0.7), "traces", "reduces the leak to traces"),
        (LEAKY, row("a", error=1.0), "clean, reconstructs nothing", "it makes the model reconstruct nothing"),
        (
            LEAKY,
            row("a", shift=0.5, variance=0.5, r=0.7, without_prior={}),
            "clean, explicit prior",
            "position enters through the explicit prior only",
        ),
        (
            row("none", shift=0.3, variance=0.2, r=0.1, best=0.9),
            row("a", shift=0.3, variance=0.2, r=0.1, best=0.9),
            "leaky",
            "does not remove the leak",  # there never was a linear part that it could have removed
        ),
    ],
)
def test_words(reference: Row[LeakRun], mitigated: Row[LeakRun], expected: str, words: str) -> None:
    assert verdict(mitigated) == expected
    assert words in table(reference, mitigated).findings[1]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            (LEAKY, row("a"), row("b", shift=0.2, variance=0.15), row("c", error=1.0)),
            "Position leaks in the reference, none (shift sensitivity up to 30.0 %): a removed it; b did not remove "
            "it; c reconstructed nothing.",
        ),
        ((CLEAN, row("a")), "none has no leak to remove: predictions do not depend on absolute position."),
        ((CLEAN, LEAKY), "none: clean; none: leaky."),
        (
            (LEAKY, row("a", shift=0.5, variance=0.5, r=0.7, without_prior={})),
            "none: leaky; a: clean, explicit prior.",
        ),
        ((LEAKY,), "none: leaky."),
        ((row("none", error=1.0), row("a")), "none: clean, reconstructs nothing; a: clean."),
    ],
)
def test_the_page_begins_with_the_verdict(rows: tuple[Row[LeakRun], ...], expected: str) -> None:
    assert LEAK.conclusion(table(*rows)) == expected


def test_a_mitigation_is_not_blamed_for_a_model_that_reconstructed_nothing_before() -> None:
    findings = table(row("none", error=1.0, shift=0.3, variance=0.2), row("a", error=1.0)).findings
    assert "reconstructs nothing" in findings[0]
    assert "makes the model reconstruct nothing" not in findings[1]


def test_costs_are_factors_over_paired_seeds() -> None:
    made = table(row("none", error=0.5), row("a", error=0.6))
    found = cost(made, made.rows[1], 0.5)
    assert found is not None
    assert found[0] == pytest.approx(1.2)
    assert cost(made, made.rows[0], 0.5) == (1.0, (1.0, 1.0))


def test_without_a_reference_each_is_described_by_itself() -> None:
    nothing = Row("none", (RunResult(LeakRun(), "failed", "a non-finite number"),))
    findings = " ".join(table(nothing, row("a", shift=0.3, variance=0.2, r=0.7)).findings)
    assert "a: shift sensitivity up to 30.0 %; the position variance at mask ratio 1 is 20.0 %" in findings
    assert "No run of none has finished" in findings


def test_seeds_that_disagree_are_marked() -> None:
    assert verdict(Row("a", (LEAKY.results[0], CLEAN.results[1]))) == "leaky, seeds disagree"


def test_a_correlation_that_is_undefined_on_one_seed_has_lost_no_linear_part() -> None:
    """Once a crash: predictions of one seed were equal, so that the row had no mean correlation to print."""
    findings = table(LEAKY, Row("a", (CLEAN.results[0], *LEAKY.results[1:]))).findings
    assert "a: does not remove the leak" in findings[1]


def test_nothing_is_called_good_or_bad_of_a_model_that_reconstructs_nothing() -> None:
    page = table_html(LEAK, table(row("none", error=1.0), row("a", error=1.0, shift=0.3, variance=0.2)))
    assert page.count('<span class="badge unsure">reconstructs nothing</span>') == 2
    assert '<span class="badge unsure">clean</span>' in page
    assert '<span class="badge unsure">leaky</span>' in page
    alive = table_html(LEAK, table(CLEAN, row("a", shift=0.3, variance=0.2)))
    assert '<span class="badge good">clean</span>' in alive
    assert '<span class="badge bad">leaky</span>' in alive


def test_figures_and_the_table_give_a_mitigation_the_same_colour() -> None:
    made = table(Row("failed", (RunResult(LeakRun(), "failed", "gone"),)), LEAKY, row("a"))
    for figure in LEAK.figures(made).values():
        lines = {trace.name: trace.line.color for trace in traces(figure) if trace.mode == "lines"}
        assert lines == {name: LEAK.style(made, name)["color"] for name in ("none", "a")}


def test_every_mitigation_is_compared_with_the_first_at_two_mask_ratios(store: Store) -> None:
    asked = {"data": "synthetic:steps=48,channels=2", "mitigations": ["none", "all", "content_gated"], "seeds": 2}
    (planned,) = LEAK.plan(LeakConfig.read(asked), store)
    assert [(a, b, by.part) for a, b, by in planned.contrasts] == [
        (name, "none", f"at mask ratio {ratio}") for ratio in ("0.5", "0.9") for name in ("all", "content_gated")
    ]
