"""Variants of a field model side by side, on tables whose numbers are made up."""

from __future__ import annotations

import pytest

from tests.tables import traces, untested
from whence.errors import UserError
from whence.experiments.page import table_html
from whence.experiments.results import RunResult
from whence.experiments.table import Row, Table
from whence.fields.config import FieldsConfig
from whence.fields.cost import COSTS, Cost, cost_request
from whence.fields.instrument import FIELDS
from whence.fields.metrics import Diversity, FieldsMetrics, MethodQuality, ScaleQuality, SplitMetrics, SwapQuality
from whence.fields.run import FieldsRun
from whence.store.runs import Store

DATA = "photos:size=16,factor=2"


def made_up_metrics(test: dict[int, float], validation: dict[int, float]) -> FieldsMetrics:
    """By scale, the PSNR of the field."""
    swap, diversity = SwapQuality(psnr=0.0, own=0.0), Diversity(raw=0.0, centred=0.0)
    splits = {
        name: SplitMetrics(
            scales=[ScaleQuality(scale=scale, field=MethodQuality(psnr=value)) for scale, value in values.items()],
            swap=swap,
            diversity=diversity,
        )
        for name, values in (("test", test), ("validation", validation))
    }
    return FieldsMetrics(headline={}, **splits)


def result(seed: int, psnr: float) -> RunResult[FieldsRun]:
    """On test data as named, 1 dB better on validation data, 2 dB worse at the doubled scale."""
    run = FieldsRun.read({"data": DATA, "model": {"d_model": 16, "layers": 1, "lps": 16}, "seed": seed})

    metrics = made_up_metrics(test={1: psnr, 2: psnr - 2}, validation={1: psnr + 1, 2: psnr - 1})
    return RunResult(run, "finished", metrics=metrics.model_dump(mode="json"))


def made() -> Table[FieldsRun]:
    failed = RunResult(result(2, 0.0).run, "failed", "a non-finite number")
    good = Row("M=64", tuple(result(seed, 20.0 + seed) for seed in range(3)))
    return untested(FIELDS, "lps", [good, Row("M=16", (result(0, 17.0), result(1, 19.0), failed))])


def test_quality_is_shown_for_every_scale_with_its_interval() -> None:
    table = made()
    assert [column.title for column in table.columns][:3] == ["validation ×1", "test ×1", "test ×2"]
    first, second = table.rows
    assert first.cell("psnr_x1").per_seed == {0: 20.0, 1: 21.0, 2: 22.0}
    assert first.cell("psnr_x2").mean == pytest.approx(19.0)
    assert first.cell("validation_x1").mean == pytest.approx(22.0)
    assert first.cell("psnr_x1").text == "21.00 [18.52, 23.48]"
    assert second.cell("psnr_x1").per_seed == {0: 17.0, 1: 19.0}, "a failed run is in no average"
    assert "Failed runs, excluded from averages: M=16 (1)." in table.findings


def test_costs_are_those_that_the_store_holds(store: Store) -> None:
    row = made().rows[0]
    request = cost_request(row.results[0].run)
    (before,) = FIELDS.rows(made().planned, [row], store)
    assert before.cell("encode").text == "–"
    COSTS.save(request, Cost(encode=2.04, decode=1.5, memory=0.25), store)
    (after,) = FIELDS.rows(made().planned, [row], store)
    assert [after.cell(name).text for name in ("encode", "decode")] == ["2.0", "1.5"]


def test_the_figure_has_every_seed_and_no_colour_by_variant() -> None:
    table = made()
    seeds, means = traces(FIELDS.figures(table)["Quality by variant"])
    assert list(seeds.x) == [20.0, 21.0, 22.0, 17.0, 19.0]
    assert list(means.x) == [21.0, 18.0]
    assert "swatch" not in table_html(FIELDS, table)


def test_every_variant_is_compared_with_the_first(store: Store) -> None:
    config = FieldsConfig.read({"axis": "hyponet", "data": DATA, "seeds": 2, "training": {"steps": 2}})
    (planned,) = FIELDS.plan(config, store)
    names = list(planned.variants)
    assert names[0] == "cross_attention"
    assert [(a, b, by.part) for a, b, by in planned.contrasts] == [(name, names[0], "at ×1") for name in names[1:]]
    assert {len(runs) for runs in planned.variants.values()} == {2}


def test_what_is_drawn_anew_for_every_seed_is_not_named_as_shared(store: Store) -> None:
    config = {"axis": "hyponet", "seeds": 2}
    on = {data: FIELDS.plan(FieldsConfig.read({**config, "data": data}), store)[0].on for data in ("photos", "volume")}
    assert on == {"photos": "these held-out signals", "volume": ""}


@pytest.mark.parametrize(
    ("axis", "field", "value"),
    [
        ("lps", "lps", 8),
        ("placement", "conditional", True),
        ("hyponet", "hyponet", "siren"),
        ("encoder", "mixer", "mamba"),
    ],
)
def test_what_an_axis_varies_cannot_be_set(axis: str, field: str, value: object, store: Store) -> None:
    """A variant would be listed twice, or the value would be ignored."""
    config = FieldsConfig.read({"axis": axis, "model": {field: value}})
    with pytest.raises(UserError, match=f"{field}: expected no value, because axis {axis}"):
        FIELDS.plan(config, store)
