"""The page of a comparison: complete, self-contained, and safe with any text."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest

from tests.arena.made_report import show_maps, some_maps
from whence.arena.findings import findings
from whence.arena.instrument import ArenaTable
from whence.arena.score import mastered
from whence.experiments.comparison import read_comparison
from whence.experiments.export import Report
from whence.experiments.results import RunResult
from whence.experiments.saved import find_config, read_config
from whence.experiments.table import Cell
from whence.report.shell import write
from whence.store.files import check_addressed
from whence.store.runs import Store

HOSTILE = """<img src=x onerror=alert(1)>&"'</script><!--<script>"""


def own_part(text: str) -> str:
    """Without scripts: the drawing library has addresses in its comments."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_nothing_is_fetched(report: Report) -> None:
    text = report.html().decode()
    assert not re.search(r"<(script|link|img|iframe|source|video|object|embed)[^>]*\s(src|href|data)\s*=", text)
    assert not re.search(r"url\(|@import|https?://", own_part(text))
    assert text.count("plotly.js v") == 1, "the drawing library is inside, once"


def test_every_run_and_every_seed_is_shown(report: Report) -> None:
    text = report.html().decode()
    rows = [row for table in report.tables for row in table.rows]
    for row in rows:
        assert all(result.run.id in text for result in row.results)
    dots = own_part(text).count("<i style=")
    within = sum(len(row.finished) for row in rows)
    beyond = sum(len(row.finished) for row in rows if mastered(row))
    assert (within, beyond) == (52, 18)
    assert dots == within + beyond, "one dot per seed, ID and, where it is claimed, OOD"
    assert own_part(text).count("<b style=") == 6 + 2, "the baseline on every strip of dots"
    assert text.count("Failed runs, excluded from averages: t5 (1).") == 2
    assert text.count("loss is &lt;i&gt;NaN&lt;/i&gt; &amp; gone") == 2, "why it failed"


def test_findings_baselines_and_headings_are_in_the_page(report: Report) -> None:
    text = html.unescape(report.html().decode())
    for table in report.tables:
        assert table.heading in text
        assert len(findings(table)) > 2
        for line in findings(table):
            assert line in text
        baselines = table.planned.run.shortcut_baselines(8)
        assert all(f"{name} {100 * value:.1f} %" in text for name, value in baselines.items())
        assert table.caption in text
    assert "rope beats alibi in distribution" in text
    assert "Across tasks" in text


def test_the_configuration_and_the_command_can_be_copied_out(report: Report) -> None:
    text = report.html().decode()
    blocks = [html.unescape(block) for block in re.findall(r"<pre>(.*?)</pre>", text, flags=re.DOTALL)]
    assert blocks[0] == report.command
    assert json.loads(blocks[1]) == report.config


def test_whatever_a_user_wrote_stays_text(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    show_maps({HOSTILE: some_maps()}, monkeypatch)
    table = report.tables[0]
    row = table.rows[0]
    failed = RunResult(row.results[0].run, "failed", HOSTILE)
    one = replace(row, name=HOSTILE, results=(*row.results, failed), cells={**row.cells, "chosen": Cell(HOSTILE)})
    broken = replace(one, cells={"id": Cell(HOSTILE, verdict=HOSTILE)})
    assert isinstance(table.planned, ArenaTable)
    strange = replace(
        table, planned=replace(table.planned, title=HOSTILE), rows=(one, broken), caption=HOSTILE, findings=(HOSTILE,)
    )
    text = replace(report, tables=[strange], config={"x": HOSTILE}, command=HOSTILE).html().decode()
    for wrong in ("<img", "</script><!--", "<!--<script>"):
        assert wrong not in own_part(text)
        assert wrong not in text.replace(re.findall(r"<script[^>]*>/\*\*?.*?</script>", text, re.DOTALL)[0], "")
    assert text.count("&lt;img") >= 12


def test_a_page_has_the_name_of_its_content(report: Report, store: Store) -> None:
    path = write("arena", report.html(), store.reports)
    check_addressed(path)
    assert write("arena", report.html(), store.reports) == path
    assert write("arena", replace(report, command="another").html(), store.reports) != path


def test_a_comparison_writes_the_same_page_under_its_own_name(report: Report, store: Store) -> None:
    """That of the command that runs it, and that of `whence report`."""
    name, path = find_config("arena-", store, {"arena": None})
    config = read_config(path, report.instrument.config)
    first = read_comparison(report.instrument, config, store)
    assert name == "arena"
    assert first.name == path.stem
    assert first.report is not None
    assert first.report.name.startswith(f"{path.stem}-")
    check_addressed(first.report)
    assert [table.title for table in first.tables] == [table.title for table in report.tables]
    assert read_comparison(report.instrument, config, store).report == first.report


def test_a_page_without_maps_or_results(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    show_maps({}, monkeypatch)
    table = report.tables[1]
    rows = tuple(replace(row, results=(), cells={}) for row in table.rows)
    text = replace(report, tables=[replace(table, rows=rows, comparisons=())]).html().decode()
    assert "<canvas" not in own_part(text)
    assert "<i style=" not in own_part(text)
