"""Pages of autoencoders: complete, alive in a browser, and safe with any text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from tests.tables import traces, untested
from whence.experiments.page import comparison_page
from whence.experiments.results import RunResult
from whence.experiments.table import Row, Table
from whence.features.evals.profiles import ActivatingContext, FeatureProfiles
from whence.features.figures import STRICT, final_losses, score_figures
from whence.features.instrument import COLUMNS, FEATURES
from whence.features.metrics import (
    DictionaryMetrics,
    FeaturesMetrics,
    MaskOffMetrics,
    RecoveryMetrics,
    RetentionMetrics,
    SelectivityMetrics,
)
from whence.features.page import profile_findings, run_page
from whence.features.run import FeaturesRun
from whence.store.records import EvaluationRecord, LossRecord
from whence.store.runs import Store

EVALUATIONS = [
    EvaluationRecord(step=step, metrics={"headline": {}, "fvu": fvu, "l0": 8.0, "curve": fvu})
    for step, fvu in ((0, 1.0), (20, 0.3))
]
LOSSES = [LossRecord(step=10, loss=0.5, lr=0.1, grad_norm=1.0), LossRecord(step=20, loss=0.25, lr=0.0, grad_norm=1.0)]
RECORDS = [EVALUATIONS[0], *LOSSES, EVALUATIONS[1]]


@pytest.fixture
def found() -> FeatureProfiles:
    """700 features, so that a line of the map is of more than one; number 3 is bound to the fifth of 12 positions."""
    drawn = torch.Generator().manual_seed(0)
    mask_off = torch.rand(12, 700, generator=drawn)
    mask_off[:, 3] = torch.arange(12) == 4
    mask_values = (torch.rand(12, 700, generator=drawn) < 0.5).float()
    bad = ActivatingContext(
        value=1.5,
        sequence=7,
        position=5,
        before="<script>document.title='taken'</script> & so",
        token="<b>token</b>",
        after="after </script> it",
    )
    degree = {3: 0.97, 4: 0.1, 5: -0.001}
    active = torch.rand(700, generator=drawn)
    active[9] = 0
    return FeatureProfiles(
        positions=tuple(range(1, 13)),
        used=mask_off * mask_values,
        mask_off=mask_off,
        active=active,
        position_selectivity=degree,
        mask_values=mask_values,
        fvu=0.3,
        fvu_mask_off=0.9,
        contexts={3: (bad,)},
    )


def test_text_of_documents_is_never_taken_for_the_page(found: FeatureProfiles) -> None:
    page = run_page(FeaturesRun(), found, RECORDS, "whence features show 1").decode()
    assert "<script>document.title" not in page
    assert "<b>token" not in page
    assert "&lt;script&gt;document.title=&#39;taken&#39;&lt;/script&gt; &amp; so" in page
    assert "<mark>&lt;b&gt;token&lt;/b&gt;</mark>" in page


def test_findings_are_sentences_with_the_verdict_first(found: FeatureProfiles) -> None:
    verdict, *_, specific, fvu = profile_findings(found)
    assert verdict.startswith("1 of 3 features are position-specific with the mask off")
    assert "3 at 5 (0.97)" in specific
    assert "0.3000; 0.9000 with the mask off" in fvu


def test_a_browser_draws_the_maps_and_the_first_feature(found: FeatureProfiles, browse: Callable[[bytes], str]) -> None:
    shown = browse(run_page(FeaturesRun(), found, RECORDS, "again"))
    assert "<title>whence features: " in shown
    assert "Feature 3: peak at position 5, position selectivity 0.970" in shown
    assert shown.count('<details class="contexts" open="">') == 1
    assert shown.count("<svg") >= 6, "three maps, profile, histogram, learning curve"
    assert shown.count('class="heatmaplayer') == 3, "mask off, as trained, the mask"
    without = {"mask_values": None, "used": None, "contexts": {}, "note": "There is no <text>."}
    bare = found.model_copy(update=without)
    shown = browse(run_page(FeaturesRun(), bare, RECORDS, "again"))
    assert "<title>whence features: " in shown
    assert shown.count('class="heatmaplayer') == 1
    assert "There is no &lt;text&gt;." in shown


def metrics(fvu: float) -> FeaturesMetrics:
    selectivity = SelectivityMetrics(features=60, median=0.01, mean=0.02, position_specific=3)
    retention = RetentionMetrics(features=60, median=0.4, chance=0.1)
    mask_off = MaskOffMetrics(fvu=fvu + 0.1, l0=9.0, position_selectivity=selectivity, retention=retention)
    recovery = {
        kind: RecoveryMetrics(largest=0.9, matched=matched, recovered=0.1)
        for kind, matched in (("free", 0.8), ("position_specific", 0.6))
    }
    final = DictionaryMetrics(
        fvu=fvu, l0=8.0, dead=0.1, activations=100, position_selectivity=selectivity, mask_off=mask_off
    )
    return FeaturesMetrics(headline={}, fvu=fvu, l0=8.0, curve=fvu, final=final, recovery=recovery)


def result(seed: int, fvu: float, losses: Sequence[LossRecord] = LOSSES) -> RunResult[FeaturesRun]:
    return RunResult(_run(seed), "finished", metrics=metrics(fvu).model_dump(), losses=losses, evaluations=EVALUATIONS)


def failure(seed: int, reason: str) -> RunResult[FeaturesRun]:
    return RunResult(_run(seed), "failed", reason)


def _run(seed: int) -> FeaturesRun:
    return FeaturesRun.read({"data": "synthetic", "model": {"d_sae": 64, "sparsity": "topk:k=8"}, "seed": seed})


def table_of(*rows: Row[FeaturesRun]) -> Table[FeaturesRun]:
    return untested(FEATURES, "planted, 64 features", rows)


def compared(*names: str) -> Table[FeaturesRun]:
    """Every preset on seeds of its own, so that no two rows share a run."""
    rows = []
    for place, name in enumerate(names):
        first, second = 2 * place, 2 * place + 1
        other = result(second, 0.25) if place else failure(second, "loss is <i>NaN</i>")
        rows.append(Row(name, (result(first, 0.2 + place / 100), other)))
    return table_of(*rows)


def page_of(table: Table[FeaturesRun], command: str = "again") -> str:
    return comparison_page(FEATURES, [table], {"seeds": 2}, command, Store("nowhere")).decode()


def test_a_comparison_names_all_presets_runs_columns_and_failures() -> None:
    table = replace(compared(*STRICT, "position_mean_topk", "001_run01_hard_mask, position ablated"), family=3)
    page = page_of(table, "whence features compare --config x")
    for row in table.rows:
        assert page.count(row.name) >= 4
        assert all(result.run.id in page for result in row.results)
    titles = [measure.title for measure in COLUMNS.values()]
    assert all(f"<th scope=col>{title}<" in page for title in (*titles, "seed stability", "parameters"))
    assert "loss is &lt;i&gt;NaN&lt;/i&gt;" in page
    assert "exploratory" in page
    assert "Hard and soft masks" in page
    assert "whence features compare --config x" in page
    assert 'src="http' not in page


def test_figures_and_the_table_give_a_preset_the_same_colour() -> None:
    table = compared("static_slice", "001_run01_hard_mask", "001_run01_hard_mask, position ablated")
    lines = {trace.name: (trace.line.color, trace.line.dash) for trace in traces(score_figures(table)["Training loss"])}
    styles = {row.name: FEATURES.style(table, row.name) for row in table.rows}
    assert lines == {name: (style["color"], style["dash"]) for name, style in styles.items()}
    page = page_of(table)
    for name, style in styles.items():
        assert f'<span class=swatch style="background:{style["color"]}"></span>{name}<' in page


def test_masks_are_set_side_by_side_only_where_there_are_two() -> None:
    assert "Hard and soft" not in page_of(compared("static_slice", "position_mean_topk"))


def test_a_comparison_without_any_result_is_still_a_page() -> None:
    assert "gone" in page_of(table_of(Row("plain_topk", (failure(0, "gone"),))))


def test_curves_are_means_over_runs_and_final_losses_over_the_last_tenth() -> None:
    def losses(values: dict[int, float]) -> list[LossRecord]:
        return [LossRecord(step=step, loss=loss, lr=0.1, grad_norm=1.0) for step, loss in values.items()]

    def drawn(*runs: dict[int, float]) -> dict[int, float]:
        row = Row("plain_topk", tuple(result(seed, 0.2, losses(values)) for seed, values in enumerate(runs)))
        *seeds, mean = traces(score_figures(table_of(row))["Training loss"])
        assert len(seeds) == (len(runs) if len(runs) > 1 else 0)
        return dict(zip(mean.x, mean.y, strict=True))

    assert drawn({1: 2.0, 2: 4.0}, {1: 4.0, 3: 1.0}) == {1: 3.0}
    assert drawn({}) == {}
    run = result(0, 0.2, losses({step: float(step) for step in range(10, 101, 10)}))
    assert final_losses(Row("plain_topk", (run,))) == {run.run.id: 95.0}
