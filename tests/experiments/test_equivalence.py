"""One comparison, requested in four ways: as a job of the app, from Python, by the command line as text and as JSON.

The runs, the table document and the bytes of the page are the same. The job comes first, in a process of its own, and
trains; the other three find everything in the store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.app.browse import until
from tests.calls import document, output
from whence.app.jobs import ALIVE, CompareRequest, submit
from whence.experiments.comparison import ComparisonResult, planned_runs, read_comparison
from whence.experiments.export import report_on_runs
from whence.instruments import PLACES, instrument
from whence.store.runs import Store
from whence.training.config import load_run_config

SHORT = {"steps": 2, "batch_size": 4, "evaluations": 1}
CONFIGS: dict[str, dict[str, Any]] = {
    "arena": {
        "tasks": ["copy"],  # whose baselines are packaged: this process searches for others in less depth
        "encodings": ["rope", "none"],
        "model": {"d_model": 16, "heads": 2, "layers": 1},
        "lengths": {"train_length": 16, "test_lengths": [32], "test_sequences": 16},
        "training": SHORT,
        "seeds": 2,
    },
    "leak": {
        "data": "synthetic:steps=48,channels=2",
        "mitigations": ["none", "zero_masked_positions"],
        "model": {"d_model": 8},
        "training": SHORT,
        "seeds": 2,
    },
    "features": {
        "data": "synthetic:d_in=16,features=24,context_size=8",
        "presets": ["plain_topk", "position_mean_topk"],
        "d_sae": 32,
        "training": SHORT,
        "seeds": 2,
    },
    "fields": {
        "axis": "lps",
        "data": "photos:size=16,factor=2",
        "model": {"d_model": 16, "layers": 1},
        "training": SHORT,
        "seeds": 1,
    },
}


@dataclass(frozen=True)
class Requested:
    """A comparison that the app has run."""

    name: str
    fields: dict[str, Any]
    store: Store
    result: ComparisonResult[Any]
    """What the app reads in the store once the job has ended"""
    page: bytes
    files: dict[str, int]
    """By path in the store, the time of the last change: nothing is trained or measured again"""

    def arguments(self, folder: Path) -> list[str]:
        path = folder / "config.json"
        path.write_text(json.dumps(self.fields))
        command = instrument(self.name).command
        return [*command, "--config", str(path), "--store", str(self.store.root), "--workers", "1"]


def files(store: Store) -> dict[str, int]:
    """Of runs, artifacts and pages. A page may be written again: its name holds the checksum of its content."""
    paths = [*store.root.glob("runs/*/*"), *store.root.glob("artifacts/*"), *store.reports.glob("*.html")]
    return {
        str(path.relative_to(store.root)): 0 if path.suffix == ".html" else path.stat().st_mtime_ns
        for path in paths
        if path.name != "lock"
    }


@pytest.fixture(scope="module", params=list(PLACES))
def requested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Requested:
    name = request.param
    store = Store(tmp_path_factory.mktemp(name) / "store")
    chosen, fields = instrument(name), CONFIGS[name]
    job = submit(CompareRequest(instrument=name, config=fields), store, title=f"a comparison of {name}")
    until(lambda: job.state not in ALIVE)
    assert job.state == "finished", job.failure
    (page,) = store.reports.glob("*.html")
    before = files(store)
    result = read_comparison(chosen, chosen.config.read(fields), store)
    return Requested(name, fields, store, result, page.read_bytes(), before)


def test_the_app_reads_what_its_job_wrote(requested: Requested) -> None:
    chosen, result = instrument(requested.name), requested.result
    runs = planned_runs(chosen, chosen.config.read(requested.fields), requested.store)
    assert {run.id for run in runs} == set(requested.store.ids())
    assert all(len(row.finished) == requested.fields["seeds"] for table in result.tables for row in table.rows)
    assert result.report is not None
    assert result.report.read_bytes() == requested.page
    assert files(requested.store) == requested.files


def test_python(requested: Requested) -> None:
    result = whence.compare(requested.name, store=requested.store.root, **requested.fields)
    same_as_the_app(requested, result.to_json())


def test_the_command_line_with_json(requested: Requested, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same_as_the_app(requested, document(requested.arguments(tmp_path), capsys))


def same_as_the_app(requested: Requested, printed: dict[str, Any]) -> None:
    expected = requested.result.to_json()
    assert set(printed.pop("runs")) == set(requested.store.ids())
    assert printed == {key: value for key, value in expected.items() if key != "runs"}
    assert files(requested.store) == requested.files


def test_the_command_line_as_text(requested: Requested, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = output(requested.arguments(tmp_path), capsys)
    together = "".join(printed.split())  # tables are wrapped
    for table in requested.result.tables:
        texts = [table.title, table.heading, *table.findings, *(row.name for row in table.rows)]
        shown = [column.key for column in table.columns if not column.detail]
        texts += [row.cell(key).text for row in table.rows for key in shown if len(row.cell(key).text) < 12]
        assert all("".join(text.split()) in together for text in texts)
    assert f"report   {requested.result.report}" in printed
    assert f"command  {requested.result.command}" in printed
    assert files(requested.store) == requested.files


def test_single_runs_have_the_numbers_of_the_comparison(requested: Requested) -> None:
    runs = [load_run_config(requested.store.folder(run).config_document()) for run in requested.store.ids()]
    report = report_on_runs(runs, requested.store, instrument)
    assert report.html()
    (table,), (compared,) = report.tables, requested.result.tables
    single = {result.run.id: row for row in table.rows for result in row.finished}
    assert set(single) == set(requested.store.ids())
    assert not table.comparisons
    for row in compared.rows:
        for criterion in compared.planned.criteria:
            for result in row.finished:
                values = [of.cell(criterion.column).per_seed[result.run.seed] for of in (row, single[result.run.id])]
                assert values[0] == values[1]


@pytest.mark.parametrize(
    ("name", "fields", "flags"),
    [
        ("arena", {"tasks": ["k_back_recall:k=9"], "lengths": {"train_length": 4}}, []),
        ("arena", {"encodings": ["rope", "rope"]}, []),
        ("arena", {"seeds": 9, "max_seeds": 8, "until_decided": True}, []),
        ("arena", {"model": {"d_model": 2**20}}, []),
        ("arena", {}, ["--minutes", "1"]),
        ("leak", {"data": "synthetic:steps=48,channels=2", "model": {"window": 7}}, []),
        ("features", {"presets": ["plain"]}, []),
        ("fields", {"data": "photos:size=17,factor=2"}, []),
    ],
)
def test_python_checks_what_the_command_line_checks(
    name: str, fields: dict[str, Any], flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = tmp_path / "config.json", tmp_path / "store"
    path.write_text(json.dumps(fields))
    arguments = [*instrument(name).command, "--config", str(path), "--store", str(store), *flags]
    message = document(arguments, capsys, code=2)["error"]["message"]
    keywords = {flags[0].removeprefix("--"): float(flags[1])} if flags else {}
    with pytest.raises(whence.errors.UserError) as refused:
        whence.compare(name, store=store, **keywords, **fields)
    assert str(refused.value) == message
    assert not store.exists()
