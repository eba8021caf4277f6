"""A store from a stranger: whatever a well-sealed document says, commands and pages work or name the damage."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conftest import TINY, merged
from tests.store.hostile import CONTROLS, Chained, Sealed, documents, mutated
from whence.app.jobs import Job, JobEnd, JobFailure, JobStart, ResumeRequest, Submission, job_id, jobs
from whence.arena.config import ArenaConfig
from whence.cli.main import run
from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.experiments.comparison import planned_runs, report_on, tables_of
from whence.experiments.saved import read_config, save_config, saved_configs
from whence.instruments import instrument, instruments
from whence.report.runs import beside, curves, side_by_side
from whence.store.disk import CorruptFileError
from whence.store.records import write_as
from whence.store.runs import Store

BRIEF: dict[str, Any] = {"steps": 2, "batch_size": 8, "evaluations": 1}
OTHERS: dict[str, dict[str, Any]] = {
    "leak": {"data": "synthetic:steps=64,channels=2", "masking": {"test_rows": 8}, "training": BRIEF},
    "features": {"data": "synthetic:features=8,d_in=8,context_size=8", "model": {"d_sae": 16}, "training": BRIEF},
    "fields": {
        "data": "digits",
        "model": {"lps": 4, "d_model": 8, "heads": 2, "layers": 1},
        "training": {**BRIEF, "pixels": 8, "crops": 2},
    },
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of every instrument, a comparison with its look, and a job."""
    store, options = Store(tmp_path_factory.mktemp("made") / "store"), ExecutionOptions(threads=1)
    store.prepare()
    document = merged(TINY, {"training": {"steps": 4, "evaluations": 2}})
    fields = {
        **document,
        "model": {**document["model"]},
        "tasks": [document["task"]],
        "encodings": ["rope"],
        "seeds": 2,
    }
    del fields["task"], fields["model"]["encoding"]
    config = ArenaConfig.read(fields)
    for each in planned_runs(instrument("arena"), config, store):
        execute(each, store, options)
    for name, fields in OTHERS.items():
        execute(instrument(name).run.read(fields), store, options)
    save_config("arena", config, store)
    tables_of(instrument("arena"), config, store)
    request = ResumeRequest(runs=tuple(store.ids()[:1]))
    folder = store.root / "jobs" / job_id(request)
    folder.mkdir(parents=True)
    write_as(folder / "job.json", Submission(request=request, title="t", link={"a": "b"}, exclusive=True))
    write_as(folder / "started.json", JobStart(process=2**22 + 1, time=1.0, begun=2.0))
    write_as(folder / "end.json", JobEnd(state="failed", failure=JobFailure(message="m")))
    store.summaries()
    return store.root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Store:
    shutil.copytree(made, tmp_path / "store")
    return Store(tmp_path / "store")


def read_everything(store: Store, capsys: pytest.CaptureFixture[str], *, pages: bool = True) -> str:
    """By every command and by what pages of the app read. What was printed, which has been checked."""
    some = store.ids()[0]
    words = [["runs", verb] for verb in ("list", "verify", "export")]
    words += [["runs", verb, "--print-config"] for verb in ("repair", "resume")]
    words += [["runs", "show", some], ["report"], ["report", some, "--out", str(store.root / "a.md")]]
    words += [["report", path.stem, "--out", str(store.root / "a.csv")] for path in saved_configs("arena", store)]
    for arguments in words:
        started = time.process_time()
        assert run([*arguments, "--store", str(store.root)]) in (0, 1, 2)
        assert time.process_time() - started < 5, arguments
    if pages:
        read_as_pages(store)
    captured = capsys.readouterr()
    text = (captured.out + captured.err).replace("\r\n", "\n")  # which CSV has
    assert not {"\x1b", "\x9b", "\x07", "\r", "\u202e"} & set(text)
    return text


def read_as_pages(store: Store) -> None:
    """What the app reads to show its pages."""
    compared, _ = beside(store, store.ids())
    side_by_side(compared)
    for name in {name for one in compared for name in one.status.headline}:
        curves(compared, name)
    for job in jobs(store):
        _ = job.state, job.failure, job.progress
    for each in instruments().values():
        for path in saved_configs(each.name, store):
            try:
                config = read_config(path, each.config)
                report = report_on(each, config, store, ["--config", str(path)])
                if report.finished:
                    report.html()
            except (UserError, CorruptFileError):
                continue


WHOLE: tuple[Any, ...] = ([], {}, None, "status", 7)
STATUS: dict[str, Any] = {
    "created": 1e300,
    "updated": -1.0,
    "step": 2**62,
    "title": "a" * 1_000_000,
    "labels": {"encoding": ["rope"]},
    "headline": {"id": "nan"},
    "latest": {"headline": [1]},
    "seed": -1,
    "state": "well",
    "id": "0" * 12,
    "error": {"kind": "exception", "message": 3},
    "files": {"../../a": "0" * 64},
}


@pytest.mark.parametrize("body", [*WHOLE, *({"": {name: value}} for name, value in STATUS.items())])
def test_a_status_that_is_none_reads_as_damaged(body: Any, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    status = Sealed(store.folder(store.ids()[0]).path / "status.json")
    status.write({**status.body, **body[""]} if isinstance(body, dict) and "" in body else body)
    text = read_everything(store, capsys, pages=False)
    assert "corrupt" in text
    assert "with problems" in text


def test_what_strangers_wrote_does_not_control_the_terminal(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    status = Sealed(store.folder(store.ids()[0]).path / "status.json")
    status.write({**status.body, "title": CONTROLS, "labels": {"encoding": CONTROLS, CONTROLS: "=1+1"}})
    text = read_everything(store, capsys)
    assert "\\x1b[31mred" in text
    assert "[bold]x[/bold]" in text
    assert "\\u202e" in text


def test_a_process_that_a_job_names_is_never_a_group(store: Store) -> None:
    job = jobs(store)[0]
    started = Sealed(job.path / "started.json")
    for process in (0, 1, -1):
        started.write({**started.body, "process": process})
        assert Job(job.path).started is None


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": {}},
        {"id": {"correct": 9, "total": 0, "sequences": 0, "squares": 0, "exact": 0, "loss": 1.0}},
        {"ood": None},
        {"id": {"correct": 1, "total": 2, "sequences": 1, "squares": 1, "exact": 0, "loss": 1e300}},
    ],
)
def test_metrics_that_the_run_cannot_have_are_damaged(change: dict[str, Any], store: Store) -> None:
    chosen = instrument("arena")
    config = read_config(saved_configs("arena", store)[0], chosen.config)
    name = planned_runs(chosen, config, store)[0].id
    status = Sealed(store.folder(name).path / "status.json")
    status.write({**status.body, "latest": {**status.body["latest"], **change}})
    rows = tables_of(chosen, config, store)[0].rows
    assert [result.state for row in rows for result in row.results] == ["damaged", "finished"]


def examples(count: int) -> settings:
    phases = [phase for phase in Phase if phase is not Phase.shrink]  # every example takes a second
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, deadline=None, suppress_health_check=checks, phases=phases, database=None)


def kinds(store: Store) -> Iterator[str]:
    return iter(sorted({_kind(each.path) for each in documents(store)}))


def _kind(path: Path) -> str:
    return f"{path.name.split('-')[0]} in {path.parent.parent.name}"


def test_any_document(store: Store, capsys: pytest.CaptureFixture[str], slow: bool) -> None:
    everything = documents(store)
    by_kind = {kind: [each for each in everything if _kind(each.path) == kind] for kind in kinds(store)}
    assert len(by_kind) >= 9

    @examples(600 if slow else 6)
    @given(st.data())
    def read(data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(data.draw(st.sampled_from(list(by_kind.values())))))
        chosen.write(data.draw(mutated(chosen.body)))
        try:
            read_everything(store, capsys)
        finally:
            chosen.write(chosen.body)

    read()


def test_the_records_of_a_run(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """In a run whose status names no checksums, so that its metrics are read."""
    folder = store.folder(store.ids()[0]).path
    status, metrics = Sealed(folder / "status.json"), Chained(folder / "metrics.jsonl")
    status.write({**status.body, "files": {}})
    for record in ([], 3, "metrics", {"metrics": 1}, {"step": 1, "metrics": {"headline": 3}}, {"step": 1e300}):
        metrics.write([*metrics.body, record])
        assert "1 with problems" in read_everything(store, capsys, pages=False)
