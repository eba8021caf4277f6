"""The list of runs as a person uses it: find some, put them side by side, take them along, go on, delete."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.app.browse import App, Visitor, until
from tests.conftest import TINY, merged
from whence.arena.run import ArenaRun
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions


def tiny(**changes: Any) -> ArenaRun:
    return ArenaRun.read(merged(TINY, {"training": {"steps": 6, "evaluations": 3}, **changes}))


@pytest.fixture(scope="module", autouse=True)
def runs(app: App) -> dict[str, ArenaRun]:
    """Two that differ in their encoding, one that was interrupted, one of which a file was damaged."""
    found = {
        "rope": tiny(),
        "none": tiny(model={"encoding": "none"}),
        "interrupted": tiny(seed=1),
        "damaged": tiny(seed=2, model={"encoding": "alibi"}),
    }
    for name, run in found.items():
        steps: list[int] = []
        stop = (lambda steps=steps: steps.append(0) or len(steps) > 3) if name == "interrupted" else lambda: False
        execute(run, app.store, ExecutionOptions(threads=1), should_stop=stop)
    (app.store.folder(found["damaged"].id).path / "metrics.jsonl").write_bytes(b"{}\n")
    return found


def taken(visitor: Visitor, form: str) -> bytes:
    download = visitor.download(form)
    assert re.fullmatch(rf"runs-[0-9a-f]{{8}}\.{form.lower()}", download.suggested_filename)
    return Path(download.path()).read_bytes()


def find(visitor: Visitor, words: str, count: str) -> None:
    visitor.write("Contains", words)
    visitor.sees(f"Export all {count}")


def test_found_put_side_by_side_and_taken_along(visitor: Visitor, runs: dict[str, ArenaRun]) -> None:
    visitor.open("runs")
    visitor.sees("Export all 4 runs")
    find(visitor, "alibi", "1 run")
    find(visitor, "", "4 runs")
    visitor.page.get_by_role("button", name="interrupted 1").click()
    visitor.sees("Export all 1 run")
    visitor.page.get_by_role("button", name="interrupted 1").click()
    visitor.sees("Export all 4 runs")
    rows = json.loads(taken(visitor, "JSON"))
    assert {row["id"] for row in rows} == {run.id for run in runs.values()}
    assert [row["id"] for row in rows if "checksum" in row.get("error", "")] == [runs["damaged"].id]
    visitor.tick(2)  # the latest stand first: damaged, interrupted, none, rope
    visitor.tick(3)
    visitor.sees("Side by side")
    visitor.sees("model.encoding.name")
    lines = list(csv.DictReader(io.StringIO(taken(visitor, "CSV").decode())))
    assert {line["id"] for line in lines} == {runs["rope"].id, runs["none"].id}
    assert {line["step"] for line in lines} == {"0", "2", "4", "6"}
    page = taken(visitor, "HTML").decode()
    assert runs["rope"].id in page
    assert "whence runs show" in page
    assert taken(visitor, "PNG").startswith(b"\x89PNG\r\n\x1a\n")


def test_one_by_its_address_and_whether_every_byte_is_there(
    visitor: Visitor, app: App, runs: dict[str, ArenaRun]
) -> None:
    visitor.open(f"runs?run={runs['rope'].id}")
    visitor.sees("Score over steps")
    visitor.press("Verify")
    visitor.sees("all checksums match")
    visitor.open(f"runs?run={runs['damaged'].id}")
    visitor.sees(re.compile("cannot be read: .*checksum does not match"))
    visitor.press("Verify")
    visitor.sees(re.compile("metrics.jsonl: checksum does not match"))
    with app.store.folder(runs["damaged"].id).lock():
        visitor.press("Verify")
        visitor.sees("1 run not verified, because still running.")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../../etc/passwd", "<img src=x onerror=alert(1)>", "0" * 5000])
def test_a_tampered_address_gets_a_message(visitor: Visitor, name: str) -> None:
    visitor.open(f"runs?run={quote(name)}")
    visitor.sees(re.compile("Run .* is not in this store"))
    visitor.sees("Export all 4 runs")


@pytest.mark.slow
def test_an_interrupted_one_goes_on(visitor: Visitor, app: App, runs: dict[str, ArenaRun]) -> None:
    visitor.open(f"runs?run={runs['interrupted'].id}")
    visitor.page.get_by_role("button", name="Resume 1").click()
    visitor.sees("Resuming 1 run")
    until(lambda: app.store.folder(runs["interrupted"].id).status().state == "finished")


def test_deleted_only_after_being_asked_and_never_while_written(
    visitor: Visitor, app: App, runs: dict[str, ArenaRun]
) -> None:
    doomed, others = runs["none"], {run.id for name, run in runs.items() if name != "none"}
    visitor.open(f"runs?run={doomed.id}")
    visitor.press("Delete …")
    visitor.sees("This cannot be undone.")
    visitor.page.get_by_role("button", name="Cancel").click()
    expect(visitor.page.get_by_text("This cannot be undone.")).to_have_count(0)
    assert doomed.id in app.store.ids()
    with app.store.folder(doomed.id).lock():
        visitor.press("Delete …")
        visitor.page.get_by_role("button", name="Delete 1 run").click()
        visitor.sees(re.compile(f"Not deleted, because still running: {doomed.id}"))
    visitor.open(f"runs?run={doomed.id}")
    visitor.press("Delete …")
    visitor.page.get_by_role("button", name="Delete 1 run").click()
    visitor.sees("Deleted 1 run.")
    assert set(app.store.ids()) == others
