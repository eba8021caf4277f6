"""The same report in other forms, and the verb that writes them."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.arena.made import TASK, finish_all, spec
from whence.arena.findings import findings
from whence.arena.page import Page
from whence.cli import run
from whence.arena import export
from whence.experiments.saved import save_config
from whence.runs.store import Store


def test_csv_has_one_line_per_run_and_length(page: Page, tmp_path: Path) -> None:
    export.write_csv(page, tmp_path / "a.csv")
    lines = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    members = [(t, r, m) for t in page.tables for r in t.rows for m in r.members]
    assert len(lines) == 2 * len(members) == 104, "a failed run has no numbers"
    for line in lines:
        t, r, m = next(x for x in members if x[2].run.id == line["run"])
        counts = m.metrics["lengths"][line["length"]]
        assert (line["table"], line["encoding"], int(line["seed"])) == (t.title, r.encoding, m.run.seed)
        assert int(line["correct"]) == counts["correct"]
        assert float(line["accuracy"]) == pytest.approx(counts["correct"] / counts["total"])
        assert line["part"] == ("id" if line["length"] == "8" else "ood")
        assert float(line["floor"]) == pytest.approx(max(t.run.floors(int(line["length"])).values()))


def test_markdown_says_what_the_table_says(page: Page, tmp_path: Path) -> None:
    export.write_markdown(page, tmp_path / "a.md")
    text = (tmp_path / "a.md").read_text()
    for table in page.tables:
        assert f"## {table.title}" in text
        assert all(f"- {line}" in text for line in findings(table))
        for row in table.rows:
            assert row.within is not None
            line = next(x for x in text.split(table.title)[1].splitlines() if x.startswith(f"| {row.encoding} "))
            assert f"| {row.finished} | {100 * row.within.accuracy:.1f} [" in line
            assert (line.count("[") == 2) == row.mastered, "beyond training only for those that mastered it within"
    assert f"`{page.again}`" in text


def test_json_holds_everything(page: Page, tmp_path: Path) -> None:
    export.write_json(page, tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["spec"] == page.document
    assert found["again"] == page.again
    assert [t["title"] for t in found["tables"]] == [t.title for t in page.tables]
    assert found["tables"][0]["rows"][0]["id"]["per_seed"] == pytest.approx([1 - s / 1000 for s in range(9)], abs=1e-3)


def test_png_is_a_picture_of_the_whole_page(page: Page, browse: Callable[..., Any], tmp_path: Path) -> None:
    export.write_png(page, tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > 1000
    assert height > 2000, "two tables and six figures are longer than a screen"
    assert data.endswith(b"IEND\xaeB`\x82")


def test_a_missing_browser_is_said(page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from whence.errors import UserError

    monkeypatch.setattr(export, "BROWSERS", ("no-such-browser",))
    with pytest.raises(UserError, match="needs a browser"):
        export.write_png(page, tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


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
    assert "no comparisons in whence-runs" in output(["report"], capsys)
    one, two = save_config("arena", spec("rope", "t5"), here), save_config("arena", spec("alibi", seeds=9, sweep="k=1,2"), here)
    text = output(["report"], capsys)
    assert one.stem in text
    assert two.stem in text
    assert "k=1,2" in text
    found = {c["name"]: c for c in json.loads(output(["report", "--json"], capsys))}
    assert found[one.stem]["encodings"] == ["rope", "t5"]
    assert found[two.stem]["seeds"] == 9
    (here.reports / "arena-0123.json").write_text("{")
    (here.reports / "arena-4567.json").write_text('{"encodings": ["gone"]}')
    assert run(["report"]) == 0
    captured = capsys.readouterr()
    assert one.stem in captured.out, "one damaged file must not hide the others"
    assert "arena-0123.json" in captured.err


def test_reports_of_comparisons_and_of_single_runs(here: Store, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = spec("rope", "alibi", seeds=2)
    plan = comparison.plan()
    name = save_config("arena", comparison, here).stem
    assert "has finished" in output(["report", name], capsys, code=2)
    finish_all(here, plan, {"rope": [0.9, 0.8], "alibi": [0.7, 0.6]})
    path = Path(output(["report", name[:10]], capsys).strip())
    assert path.parent == here.reports
    text = path.read_text()
    assert all(r.id in text for r in plan)
    assert f"whence arena --config {save_config('arena', comparison, here)}" in text

    picked = [plan[0].id[:9], plan[3].id]
    found = json.loads(output(["report", *picked, picked[0], "--out", "a.md", "--json"], capsys))
    rows = found["tables"][0]["rows"]
    assert [(r["encoding"], r["seeds"]) for r in rows] == [("rope", [0]), ("alibi", [1])]
    assert Path("a.md").read_text().count("| rope | 1 |") == 1


def test_two_comparisons_in_one_report_are_told_apart(here: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Same task, same title: each must keep its own figures."""
    names = []
    for steps, value in ((4, 0.6), (9, 0.9)):
        comparison = spec("rope", seeds=2, training={"steps": steps})
        finish_all(here, comparison.plan(), {"rope": [value] * 2})
        names.append(save_config("arena", comparison, here).stem)
    found = json.loads(output(["report", *names, "--out", "a.html", "--json"], capsys))
    assert len({table["title"] for table in found["tables"]}) == 2
    text = Path("a.html").read_text()
    figures = [part.split('"')[0] for part in text.split('<div id="figure-')[1:]]
    assert len(figures) == len(set(figures)) >= 4
    once = json.loads(output(["report", names[0], names[0], "--json"], capsys))
    assert len(once["tables"]) == 1


@pytest.mark.parametrize(
    ("out", "parts"),
    [
        ("a.pdf", ["unknown ending", ".html, .png, .csv, .md, .json"]),
        ("a", ["unknown ending"]),
        ("nowhere/a.html", ["'nowhere' is not a directory"]),
        ("folder.html", ["'folder.html' cannot be written"]),
    ],
)
def test_places_that_cannot_be_written(
    here: Store, capsys: pytest.CaptureFixture[str], out: str, parts: list[str]
) -> None:
    comparison = spec("rope", seeds=1)
    finish_all(here, comparison.plan(), {"rope": [0.9]})
    Path("folder.html").mkdir()
    message = output(["report", save_config("arena", comparison, here).stem, "--out", out], capsys, code=2)
    assert "Traceback" not in message
    for part in parts:
        assert part in message
    assert TASK not in message
    assert not [p for p in Path().iterdir() if p.name.startswith((".tmp", "a"))]
