"""Audits and mitigations as a person uses them: choose a model, watch, read the verdict, find it again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.app.browse import App, Visitor
from tests.app.test_arena_page import TAMPERED
from whence.app.jobs import ActionRequest, Job, JobEnd, Submission, job_id, jobs
from whence.cli.main import run
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.leak.audit.artifact import AUDITS, audit_request
from whence.leak.config import AuditConfig, LeakConfig
from whence.store.files import digest, write_sealed
from whence.store.runs import Store

TINY = {
    "data": "synthetic:steps=48,channels=2",
    "model": {"d_model": 8},
    "masking": {"test_rows": 16},
    "training": {"steps": 4, "batch_size": 8, "evaluations": 1},
    "mitigations": "none",
    "seeds": 1,
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """Its store has a masked model already."""
    app = App(tmp_path_factory.mktemp("app") / "store")
    ((run,),) = LeakConfig.read(TINY).runs().values()
    execute(run, app.store, ExecutionOptions(threads=1, device="cpu"))
    yield app
    app.end()


def the_run(app: App) -> str:
    """The one that the store has had from the beginning."""
    return app.store.summaries()[0].id


def chart(visitor: Visitor, alt: str) -> Locator:
    return visitor.page.get_by_role("figure", name=re.compile(alt))


def open_tab(visitor: Visitor, name: str) -> None:
    visitor.page.get_by_role("tab", name=name, exact=True).click()


def go_to(visitor: Visitor, view: str) -> None:
    visitor.page.get_by_role("radio", name=view, exact=True).click()
    visitor.settled()
    expect(visitor.page.get_by_role("radio", name=view, exact=True)).to_be_checked()


def test_a_stored_model_is_audited_and_found_again(visitor: Visitor, app: App) -> None:
    visitor.open(f"leak?model={the_run(app)}")
    visitor.pick("Mask ratios", "0.5", "1.5")
    visitor.sees(re.compile("expected mask ratios above 0 and up to 1"))
    expect(visitor.page.get_by_role("button", name="Audit", exact=True)).to_be_disabled()
    visitor.pick("Mask ratios", "0.5", "1")
    visitor.page.get_by_text("Copy as a command").click()
    visitor.sees(re.compile(r"whence leak audit --run \w{12} --ratios 0.5 1 --store /"))
    visitor.press("Audit")
    visitor.sees(re.compile("Reconstructs nothing: the normalized MSE"))  # four steps teach nothing
    expect(visitor.page.locator(".badge.unsure").get_by_text("reconstructs nothing")).to_be_visible()
    visitor.sees(re.compile("Position enters through"))
    expect(chart(visitor, "after every layer")).to_be_visible()
    open_tab(visitor, "Similarity")
    expect(chart(visitor, "Similarity of mean predictions")).to_be_visible()
    open_tab(visitor, "By position")
    expect(chart(visitor, "Mean prediction")).to_be_visible()
    open_tab(visitor, "Pathways")
    visitor.sees(re.compile("additive encoding"))
    open_tab(visitor, "Measures")
    visitor.sees("gradient share of position")
    download = visitor.download("JSON")
    assert json.loads(download.path().read_text())["verdict"]["leak"] == "leaky"
    download = visitor.download("HTML")
    assert b"whence leak audit --run" in download.path().read_bytes()
    assert f"audit={next(AUDITS.all(app.store)).id}" in visitor.page.url
    for view in ("New audit", "Audits", "Compare mitigations", "Audits"):
        go_to(visitor, view)
    visitor.sees(re.compile("Reconstructs nothing: "))
    visitor.open("")
    visitor.sees("Latest results")
    visitor.page.get_by_role("link", name=re.compile("Audit of ")).first.click()
    visitor.sees(re.compile("Reconstructs nothing: "))


def test_an_audit_of_the_command_line_is_on_the_page(visitor: Visitor, app: App) -> None:
    arguments = ["leak", "audit", "--run", the_run(app), "--ratios", "0.5", "--seed", "7"]
    assert run([*arguments, "--store", str(app.store.root), "--json"]) == 0
    artifact = next(AUDITS.all(app.store))
    assert artifact.request.config.seed == 7
    visitor.open("leak?audit=")
    visitor.choose("Audit", re.compile("--seed 7"))
    visitor.sees(re.compile("Reconstructs nothing: the normalized MSE"))
    expect(visitor.page).to_have_url(re.compile(artifact.id))


@pytest.mark.slow
def test_an_audit_is_watched_stopped_and_started_again(visitor: Visitor, app: App) -> None:
    visitor.open("leak")
    visitor.choose("Model", "minilm")
    visitor.page.get_by_text("More options", exact=True).click()
    visitor.write("Number of examples", "1001")
    visitor.sees(re.compile("expected a value less than or equal to 1000, got '1001'"))
    visitor.write("Number of examples", "60")
    visitor.press("Audit")
    visitor.sees(re.compile("loading the model|mask ratio"))
    visitor.sees("✓ mask ratio 0.15")
    visitor.press("Stop")
    visitor.sees("Stopped before it finished.")
    visitor.press("Start again")
    visitor.sees(re.compile("loading the model|mask ratio"))
    visitor.sees("✓ mask ratio 0.15")
    visitor.press("Stop")
    visitor.sees("Stopped before it finished.")
    assert jobs(app.store, verb="audit")[0].state == "stopped"


@pytest.mark.slow
def test_mitigations_from_the_form_to_the_verdicts(visitor: Visitor, app: App) -> None:
    visitor.open("leak")
    go_to(visitor, "Compare mitigations")
    visitor.choose("Data", "synthetic")
    visitor.pick("Mitigations", "none", "content_gated")
    visitor.write("Number of seeds", "1")
    visitor.write("Training steps", "4")
    visitor.sees("2 runs (0 cached).")
    visitor.press("Start")
    visitor.sees(re.compile("content_gated: .*predictions do not depend on position"))
    expect(visitor.page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    visitor.settled()  # for the last time: everything has ended
    expect(visitor.page.locator(".badge").get_by_text("exploratory")).to_be_visible()
    expect(chart(visitor, "^Shift sensitivity")).to_be_visible()
    open_tab(visitor, "Reconstruction error by mask ratio")
    expect(chart(visitor, "^Reconstruction")).to_be_visible()
    (table,) = json.loads(visitor.download("JSON").path().read_text())["tables"]
    assert [row["name"] for row in table["rows"]] == ["none", "content_gated"]
    visitor.page.get_by_text("Audit one of these models").click()
    visitor.page.get_by_role("button", name="content_gated, seed 0").click()
    visitor.settled()
    expect(visitor.page.get_by_role("combobox", name="Model")).to_have_value(re.compile("content_gated · seed 0"))


def from_elsewhere(store: Store, out: str) -> Job:
    """An audit as a store from elsewhere may hold one."""
    config = AuditConfig(model="minilm", seed=int(digest(out)[:6], 16))
    request = ActionRequest(instrument="leak", verb="audit", config=config.model_dump(mode="json"))
    job = Job(store.root / "jobs" / job_id(request))
    job.path.mkdir(parents=True)
    submission = Submission(request=request, title=f"<b>{job.id}</b>", link={}, exclusive=False)
    write_sealed(job.path / "job.json", submission.model_dump(mode="json"))
    write_sealed(job.path / "end.json", JobEnd(state="finished").model_dump())
    path = AUDITS.path(audit_request(config, store), store)
    path.parent.mkdir(exist_ok=True)
    path.write_text(out)
    return job


@pytest.mark.slow
def test_a_damaged_audit_gets_a_message(visitor: Visitor, app: App) -> None:
    for damage in ("{", '{"name": "<script>document.title=1</script>"}', "[" * 9999):
        job = from_elsewhere(app.store, damage)
        visitor.open(f"leak?audit={job.id}")
        visitor.sees(re.compile("cannot be read|not what an audit looks like"))
        expect(visitor.page.get_by_role("button", name="Audit again")).to_be_visible()
        expect(visitor.page.get_by_text("could not be displayed")).to_have_count(0)
        assert visitor.page.title() != "1"
        shutil.rmtree(job.path)


@pytest.mark.slow
def test_every_choice_is_taken(visitor: Visitor, app: App) -> None:
    """Also the second and the third in a row, which an address that lags behind would undo."""
    two = [from_elsewhere(app.store, out) for out in ("1", "2")]
    visitor.open(f"leak?audit={two[0].id}")
    for job in (two[1], two[0], two[1]):
        visitor.choose("Audit", f"<b>{job.id}</b>")
        expect(visitor.page.get_by_role("combobox", name="Audit")).to_have_value(f"<b>{job.id}</b>")
        expect(visitor.page).to_have_url(re.compile(job.id))
    for job in two:
        shutil.rmtree(job.path)


@pytest.mark.slow
def test_tampered_addresses_get_a_message(visitor: Visitor, app: App) -> None:
    places = (app.store.root.parent, app.store.root, app.store.reports, app.store.runs, app.store.root / "jobs")
    job = from_elsewhere(app.store, "{}")
    before = [sorted(place.iterdir()) for place in places]
    tried = [("audit", value, "asks for audit") for value in TAMPERED]
    tried += [("comparison", TAMPERED[0], "asks for comparison"), ("model", "evil.py:build", "asks for model")]
    for parameter, value, words in tried:
        visitor.open(f"leak?{parameter}={quote(value)}")
        visitor.sees(re.compile(words))
        expect(visitor.page.get_by_text("could not be displayed")).to_have_count(0)
        assert visitor.page.title() != "taken"
    assert [sorted(place.iterdir()) for place in places] == before
    shutil.rmtree(job.path)


@pytest.mark.slow
def test_a_model_that_is_code_cannot_be_named(visitor: Visitor) -> None:
    visitor.open("leak")
    box = visitor.page.get_by_role("combobox", name="Model")
    box.fill("evil.py:build")
    visitor.sees(re.compile("No results"))


@pytest.mark.slow
def test_on_a_telephone(browser: Browser, app: App) -> None:
    small = Visitor(browser, app, width=390, scheme="dark")
    for view in ("leak", "leak?audit=", "leak?comparison="):
        small.open(view)
        assert small.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    small.leave()
