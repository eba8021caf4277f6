"""The same report in other forms, and the verb that writes them."""

from __future__ import annotations

import csv
import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.arena.made import TASK, finish_all, planned, spec
from whence.arena.findings import findings
from whence.arena.score import id_score, mastered
from whence.cli.main import run
from whence.cli.report import gather
from whence.experiments.export import PublishedResults, Report
from whence.experiments.results import final_metrics
from whence.experiments.saved import save_config
from whence.experiments.table import Column
from whence.leak.config import LeakConfig
from whence.report import export as pictures
from whence.store.disk import CorruptFileError
from whence.store.runs import Store


def test_csv_has_one_line_per_run_and_length(report: Report) -> None:
    lines = list(csv.DictReader(report.csv().decode().splitlines()))
    finished = [(t, row, result) for t in report.tables for row in t.rows for result in row.finished]
    assert len(lines) == 2 * len(finished) == 104, "a failed run has no numbers"
    for line in lines:
        t, row, result = next(x for x in finished if x[2].run.id == line["run"])
        counts = final_metrics(result).lengths[int(line["length"])]
        assert (line["table"], line["encoding"], int(line["seed"])) == (t.title, row.name, result.run.seed)
        assert int(line["correct"]) == counts.correct
        assert float(line["accuracy"]) == pytest.approx(counts.correct / counts.total)
        assert line["part"] == ("id" if line["length"] == "8" else "ood")
        assert float(line["baseline"]) == pytest.approx(
            max(t.planned.run.shortcut_baselines(int(line["length"])).values())
        )


def test_markdown_says_what_the_table_says(report: Report) -> None:
    text = report.markdown().decode()
    for table in report.tables:
        assert f"## {table.title}" in text
        assert f"\n{table.caption}.\n" in text
        assert all(f"- {line}" in text for line in findings(table))
        for row in table.rows:
            score = id_score(row)
            assert score is not None
            line = next(x for x in text.split(table.title)[2].splitlines() if x.startswith(f"| {row.name} "))
            assert f"| {len(row.finished)} | {100 * score.accuracy:.1f} [" in line
            assert (line.count("[") == 2) == mastered(row), "OOD only for those that mastered it ID"
    assert f"`{report.command}`" in text


def test_markdown_tables_keep_their_columns(report: Report) -> None:
    """A column without entries is left out, and a bar in a text is not taken for the end of a cell."""
    table = report.tables[0]
    columns = (Column("nothing", "nothing"), Column("id", "|r|"))
    rows = tuple(replace(row, name=f"a|{row.name}") for row in table.rows)
    text = replace(report, tables=[replace(table, columns=columns, rows=rows)]).markdown().decode()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[:2] == ["| variant | seeds | \\|r\\| |", "|---|---|---|"]
    assert [line.replace("\\|", "").count("|") for line in lines] == [4] * 5


def test_json_holds_everything(report: Report, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(report.json())
    found = json.loads((tmp_path / "a.json").read_text())
    assert PublishedResults.load(tmp_path / "a.json").model_dump() == found
    assert found["config"] == report.config
    assert found["command"] == report.command
    assert [t["title"] for t in found["tables"]] == [t.title for t in report.tables]
    per_seed = found["tables"][0]["rows"][0]["cells"]["id"]["per_seed"]
    assert list(per_seed) == [str(seed) for seed in range(9)]
    assert list(per_seed.values()) == pytest.approx([1 - s / 1000 for s in range(9)], abs=1e-3)


@pytest.mark.parametrize(("key", "value", "reason"), [("command", "other", "hash"), ("format", 0, "format 0")])
def test_published_results_that_were_edited_or_are_of_another_format_are_refused(
    report: Report, tmp_path: Path, key: str, value: object, reason: str
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(report.json())
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(CorruptFileError, match=reason):
        PublishedResults.load(path)


def test_png_is_a_picture_of_the_whole_page(report: Report, browse: Callable[..., Any]) -> None:
    data = report.png()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > 1000
    assert height > 2000, "two tables and six figures are longer than a screen"
    assert data.endswith(b"IEND\xaeB`\x82")


def test_a_missing_browser_is_said(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.errors import UserError

    monkeypatch.setattr(pictures, "BROWSERS", ("no-such-browser",))
    with pytest.raises(UserError, match="needs a browser"):
        report.png()


# the verb


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WHENCE_STORE", raising=False)
    store = Store()
    store.prepare()
    return store


def output(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    found = run(arguments)
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.err if code else captured.out


def test_without_arguments_it_lists_what_there_is(here: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No comparisons in whence-runs" in output(["report"], capsys)
    one = save_config("arena", spec("rope", "t5"), here)
    two = save_config("arena", spec("alibi", seeds=9, sweep="k=1,2"), here)
    text = output(["report"], capsys)
    assert one.stem in text
    assert two.stem in text
    assert "k=1,2" in text
    found = {c["name"]: c for c in json.loads(output(["report", "--json"], capsys))}
    assert [choice["encoding"]["name"] for choice in found[one.stem]["config"]["encodings"]] == ["rope", "t5"]
    assert found[two.stem]["config"]["seeds"] == 9
    assert {c["instrument"] for c in found.values()} == {"arena"}
    (here.reports / f"arena-{16 * '0'}.json").write_text("{")
    (here.reports / f"arena-{16 * '1'}.json").write_text('{"encodings": ["gone"]}')
    assert run(["report"]) == 0
    captured = capsys.readouterr()
    assert one.stem in captured.out, "one damaged file must not hide the others"
    assert f"arena-{16 * '0'}.json" in captured.err


def test_reports_of_comparisons_and_of_single_runs(here: Store, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = spec("rope", "alibi", seeds=2)
    plan = planned(comparison)
    name = save_config("arena", comparison, here).stem
    assert "has finished" in output(["report", name], capsys, code=2)
    finish_all(here, plan, {"rope": [0.9, 0.8], "alibi": [0.7, 0.6]})
    path = Path(output(["report", name[:10]], capsys).strip())
    assert path.parent == here.reports
    text = path.read_text()
    assert all(r.id in text for r in plan)
    assert f"whence arena compare --config {save_config('arena', comparison, here)}" in text

    picked = [plan[0].id[:9], plan[3].id]
    found = json.loads(output(["report", *picked, picked[0], "--out", "a.md", "--json"], capsys))
    rows = found["tables"][0]["rows"]
    assert [(r["name"], r["seeds"]) for r in rows] == [("rope", [0]), ("alibi", [1])]
    assert Path("a.md").read_text().count("| rope | 1 |") == 1


def test_two_comparisons_in_one_report_are_told_apart(here: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Same task, same title: each must keep its own figures."""
    names = []
    for steps, value in ((4, 0.6), (9, 0.9)):
        comparison = spec("rope", seeds=2, training={"steps": steps})
        finish_all(here, planned(comparison), {"rope": [value] * 2})
        names.append(save_config("arena", comparison, here).stem)
    found = json.loads(output(["report", *names, "--out", "a.html", "--json"], capsys))
    assert len({table["title"] for table in found["tables"]}) == 2
    text = Path("a.html").read_text()
    figures = re.findall(r"<div class=figure><script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert len(figures) == len(set(figures)) >= 4
    once = json.loads(output(["report", names[0], names[0], "--json"], capsys))
    assert len(once["tables"]) == 1


@pytest.mark.parametrize(
    ("out", "parts"),
    [
        ("a.pdf", ["unknown suffix", ".html, .png, .csv, .md, .json"]),
        ("a", ["unknown suffix"]),
        ("nowhere/a.html", ["'nowhere' is not a directory"]),
        ("folder.html", ["'folder.html' cannot be written"]),
    ],
)
def test_places_that_cannot_be_written(
    here: Store, capsys: pytest.CaptureFixture[str], out: str, parts: list[str]
) -> None:
    comparison = spec("rope", seeds=1)
    finish_all(here, planned(comparison), {"rope": [0.9]})
    Path("folder.html").mkdir()
    message = output(["report", save_config("arena", comparison, here).stem, "--out", out], capsys, code=2)
    assert "Traceback" not in message
    for part in parts:
        assert part in message
    assert TASK not in message.splitlines()[-1]
    assert not [p for p in Path().iterdir() if p.name.startswith((".tmp", "a"))]


def test_a_report_of_a_preset_is_made_again_by_its_name(here: Store) -> None:
    report, name = gather(["source_encodings"], here)
    assert name == "source_encodings"
    assert report.command == "whence arena compare --preset source_encodings"


def test_comparisons_of_different_instruments_are_not_mixed(here: Store, capsys: pytest.CaptureFixture[str]) -> None:
    one = save_config("arena", spec("rope", seeds=1), here).stem
    two = save_config("leak", LeakConfig.read({"data": "synthetic:steps=48,channels=2", "seeds": 1}), here).stem
    assert "expected comparisons of one instrument, got several" in output(["report", one, two], capsys, code=2)
