"""What is said of cures, on tables whose numbers are made up."""

from __future__ import annotations

from typing import Any

import pytest

from whence.leak.table import SHOWN, Row, Table


def row(cure: str, *, error: float = 0.6, moved: float = 0.0, spread: float = 0.0, r: float | None = None, **more: Any):
    """One cure over six seeds. r: correlation with everything hidden; best: R² of the probe there."""
    found = {
        "error": error,
        "spread": spread,
        "identical": spread == 0,
        "correlation": r,
        "correlation_chance": 0.2,
        "similarity": 0.9,
        "eta2": None,
        "probe": {"r2": 0.1, "best": more.get("best", 0.1)},
        "shift": {"of_prediction": moved},
        "inside": more.get("inside"),
    }
    metrics = {seed: dict.fromkeys(SHOWN, found) for seed in range(6)}
    return Row(cure, tuple(f"{cure}{seed}" for seed in range(6)), metrics, {})


LEAKY = row("none", moved=0.3, spread=0.2, r=0.7, best=0.9)
CLEAN = row("none")


@pytest.mark.parametrize(
    ("reference", "cured", "verdict", "words"),
    [
        (LEAKY, row("a"), "clean", "a: removes it"),
        (CLEAN, row("a"), "clean", "a: does not leak"),
        (LEAKY, row("a", moved=0.2, spread=0.01, r=0.7), "leaky", "shrinks it (to 1.0 % from 20.0 %"),
        (LEAKY, row("a", moved=0.2, spread=0.15, r=0.1, best=0.8), "leaky", "hides its linear part only"),
        (LEAKY, row("a", moved=0.2, spread=0.15, r=0.7), "leaky", "does not stop it"),
        (LEAKY, row("a", moved=1e-6, spread=1e-6, r=0.7), "traces", "leaves traces"),
        (LEAKY, row("a", error=1.0), "clean, dead", "the model is destroyed"),
        (
            LEAKY,
            row("a", moved=0.5, spread=0.5, r=0.7, inside={"shift": {"of_prediction": 0.0}, "spread": 0.0}),
            "clean, prior in the open",
            "what position predicts is in the prior",
        ),
        (
            row("none", moved=0.3, spread=0.2, r=0.1, best=0.9),
            row("a", moved=0.3, spread=0.2, r=0.1, best=0.9),
            "leaky",
            "does not stop it",  # there never was a linear part that it could have hidden
        ),
    ],
)
def test_words(reference: Row, cured: Row, verdict: str, words: str) -> None:
    table = Table("made up", (reference, cured))
    assert cured.verdict == verdict
    assert words in table.findings[1]


def test_a_model_that_was_dead_before_is_not_destroyed() -> None:
    table = Table("made up", (row("none", error=1.0, moved=0.3, spread=0.2), row("a", error=1.0)))
    assert "reconstructs nothing" in table.findings[0]
    assert "destroyed" not in table.findings[1]


def test_costs_are_factors_over_paired_seeds() -> None:
    table = Table("made up", (row("none", error=0.5), row("a", error=0.6)))
    cost = table.cost(table.rows[1], "0.5")
    assert cost is not None
    assert cost[0] == pytest.approx(1.2)
    assert table.cost(table.rows[0], "0.5") == (1.0, (1.0, 1.0))


def test_without_a_reference_each_is_told_by_itself() -> None:
    nothing = Row("none", ("a",), {}, {"a": "a non-finite number"})
    told = " ".join(Table("made up", (nothing, row("a", moved=0.3, spread=0.2, r=0.7))).findings)
    assert "a: with everything hidden, predictions differ by 20.0 %" in told
    assert "No run of none has finished" in told


def test_seeds_that_disagree_are_marked() -> None:
    mixed = Row("a", ("a", "b"), {0: LEAKY.metrics[0], 1: CLEAN.metrics[1]}, {})
    assert mixed.verdict == "leaky, seeds disagree"
