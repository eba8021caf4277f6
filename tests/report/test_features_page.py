"""Pages of autoencoders: complete, alive in a browser, and safe with any text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from whence.features.curves import Curves, mean_curve
from whence.features.page import comparison_page, run_page, seen
from whence.features.run import Run
from whence.features.scores_page import STRICT
from whence.features.table import COLUMNS, Row, Table
from whence.features.view import Context, View

RECORDS: list[dict[str, Any]] = [
    {"step": 0, "metrics": {"fvu": 1.0, "curve": 1.0}},
    {"step": 10, "loss": 0.5},
    {"step": 20, "loss": 0.25, "lr": 0.0},
    {"step": 20, "metrics": {"fvu": 0.3, "curve": 0.3}},
]


@pytest.fixture
def found() -> View:
    """700 features, so that a line of the map is of more than one; number 3 is bound to the fifth of 12 positions."""
    drawn = torch.Generator().manual_seed(0)
    lifted = torch.rand(12, 700, generator=drawn)
    lifted[:, 3] = torch.arange(12) == 4
    assigned = (torch.rand(12, 700, generator=drawn) < 0.5).float()
    bad = Context(1.5, 7, 5, "<script>document.title='taken'</script> & so", "<b>token</b>", "after </script> it")
    degree = {3: 0.97, 4: 0.1, 5: -0.001}
    active = torch.rand(700, generator=drawn)
    active[9] = 0
    return View(torch.arange(1, 13), lifted * assigned, lifted, active, degree, assigned, (0.3, 0.9), {3: [bad]})


def test_text_of_documents_is_never_taken_for_the_page(found: View) -> None:
    page = run_page(Run(), found, RECORDS, "whence features show 1").decode()
    assert "<script>document.title" not in page
    assert "<b>token" not in page
    assert "&lt;script&gt;document.title=&#x27;taken&#x27;&lt;/script&gt; &amp; so" in page
    assert "<mark>&lt;b&gt;token&lt;/b&gt;</mark>" in page


def test_what_is_found_is_said_in_words(found: View) -> None:
    first, second, third = seen(found)
    assert first.startswith("1 of 3 features are position-bound, masks lifted")
    assert "3 at 5 (0.97)" in second
    assert "0.3000; with masks lifted 0.9000" in third


def test_a_browser_draws_the_maps_and_the_first_feature(found: View, browse: Callable[[bytes], str]) -> None:
    watch = b"<head><script>window.onerror = e => { document.title = 'broken: ' + e }</script>"
    page = run_page(Run(), found, RECORDS, "again").replace(b"<head>", watch, 1)
    shown = browse(page)
    assert "<title>whence features: " in shown
    assert "Feature 3: peak at position 5, fidelity 0.970" in shown
    assert shown.count('<div class="contexts" data-feature="3">') == 1, "no longer hidden"
    assert shown.count("<svg") >= 3, "profile, histogram, learning curve"
    bare = replace(found, assigned=None, used=found.lifted, contexts={}, note="There is no <text>.")
    shown = browse(run_page(Run(), bare, RECORDS, "again").replace(b"<head>", watch, 1))
    assert "<title>whence features: " in shown
    assert shown.count("<canvas data-table") == 1
    assert "There is no &lt;text&gt;." in shown


def metrics(fvu: float) -> dict[str, Any]:
    lifted = {
        "fvu": fvu + 0.1,
        "l0": 9.0,
        "fidelity": {"bound": 3, "median": 0.01},
        "retention": {"median": 0.4, "chance": 0.1},
    }
    return {
        "fvu": fvu,
        "l0": 8.0,
        "dead": 0.1,
        "lifted": lifted,
        "recovery": {"free": {"matched": 0.8}, "bound": {"matched": 0.6}},
    }


def compared(*names: str) -> tuple[Table, dict[str, Curves]]:
    rows = tuple(
        Row(
            name,
            (f"{place:011x}a", f"{place:011x}b"),
            {0: metrics(0.2 + place / 100), 1: metrics(0.25)} if place else {0: metrics(0.2)},
            {} if place else {f"{place:011x}b": "loss is <i>NaN</i>"},
            1000,
            "topk",
            8.0,
            None,
        )
        for place, name in enumerate(names)
    )
    curves = {
        row.name: Curves({run: {10: 0.5, 20: 0.25} for run in row.runs}, {run: {0: 1.0, 20: 0.3} for run in row.runs})
        for row in rows
    }
    return Table("planted, 64 features", rows), curves


def test_a_comparison_names_all_presets_runs_columns_and_failures() -> None:
    table, curves = compared(*STRICT, "position_mean_topk", "001_run01_hard_mask, blind")
    page = comparison_page(table, curves, {"seeds": 2}, "whence features bench --config x").decode()
    for row in table.rows:
        assert page.count(row.name) >= 4
        assert all(run in page for run in row.runs)
    assert all(f"<th>{column}" in page for column in COLUMNS)
    assert "loss is &lt;i&gt;NaN&lt;/i&gt;" in page
    assert "exploratory" in page
    assert "Hard against soft masks" in page
    assert "whence features bench --config x" in page
    assert 'src="http' not in page


def test_masks_are_set_side_by_side_only_where_there_are_two() -> None:
    table, curves = compared("static_slice", "position_mean_topk")
    assert b"Hard against soft" not in comparison_page(table, curves, {}, "again")


def test_a_comparison_without_any_result_is_still_a_page() -> None:
    row = Row("plain_topk", ("0" * 12,), {}, {"0" * 12: "gone"}, 10, "topk", 8.0, None)
    page = comparison_page(Table("nothing", (row,)), {"plain_topk": Curves({}, {})}, {}, "again")
    assert b"gone" in page


def test_curves_are_means_over_runs_and_final_losses_over_the_last_tenth() -> None:
    assert mean_curve([{1: 2.0, 2: 4.0}, {1: 4.0, 3: 1.0}]) == {1: 3.0}
    assert mean_curve([]) == {}
    losses = {step: float(step) for step in range(10, 101, 10)}
    assert Curves({"a": losses}, {}).final_losses == {"a": 95.0}
