"""Sentences and tables of the pages of fields, on numbers that are made up."""

from __future__ import annotations

from whence.fields.analysis import FieldAnalysis, Pruning
from whence.fields.metrics import Diversity, MethodQuality, ScaleQuality
from whence.fields.page import analysis_findings, findings, quality_table

SCALES = [
    ScaleQuality(scale=1, field=MethodQuality(psnr=31.0, ssim=0.9)),
    ScaleQuality(
        scale=2,
        field=MethodQuality(psnr=27.0, above={"bicubic": 0.25}),
        render=MethodQuality(psnr=29.5, above={"bicubic": 0.75}),
        bicubic=MethodQuality(psnr=29.0),
    ),
]
ANALYSIS = FieldAnalysis(
    own=30.0,
    swapped=12.0,
    diversity=Diversity(raw=0.5, centred=0.9),
    render=29.0,
    render_swapped=28.9,
    jitter={0.0: 30.0},
    query_offset={0.0: 30.0},
    neighbours=[1, 0],
    pruning=Pruning(contribution=[0.1], psnr={0.0: 30.0, 0.5: 20.0}),
)


def test_the_verdict_is_the_render_at_the_largest_scale() -> None:
    assert findings(SCALES) == [
        "At ×2, the render reaches 29.50 dB PSNR on held-out signals: 0.50 dB above bicubic interpolation (better on "
        "75 % of the signals).",
        "At ×2, the field reaches 27.00 dB PSNR on held-out signals: 2.00 dB below bicubic interpolation (better on "
        "25 % of the signals).",
    ]
    assert findings(SCALES[:1]) == ["At ×1, the field reaches 31.00 dB PSNR on held-out signals."]


def test_the_table_has_a_row_per_method_and_a_column_per_scale() -> None:
    table = quality_table(SCALES)
    assert table.count("<tr>") == 4
    assert table.index("×1") < table.index("×2") < table.index("field") < table.index("render") < table.index("bicubic")
    assert all(text in table for text in ("31.00<br>", "0.900", "29.50", "–"))


def test_an_analysis_begins_with_what_the_field_depends_on() -> None:
    lines = analysis_findings(ANALYSIS)
    assert lines[0].startswith("The field depends on its position tokens: ")
    assert "from 30.0 to 12.0 dB" in lines[0]
    assert lines[1] == "The render hardly depends on them: the same swap costs 0.10 dB."
    assert "30.0 dB with all, 20.0 dB with 50 % removed" in lines[2]
    faint = analysis_findings(ANALYSIS.model_copy(update={"swapped": 29.0, "render": None}))
    assert faint[0].startswith("The field hardly depends")
    assert not any("render" in line for line in faint)
