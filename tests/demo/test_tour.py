"""`whence demo` from an empty directory to its page, in small."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.calls import document, output
from tests.conftest import train_in_process
from tests.demo.tiny import shrink
from whence.cli.main import run
from whence.demo import tour as tours
from whence.demo.section import Requirement, SectionError, install_command
from whence.report.export import browser
from whence.store.runs import Store
from whence.store.verify import verify_store

PROJECT = Path(__file__).parents[2]
NAMES = ["arena", "leak", "features", "fields"]
QUICK = ["demo", "--quick"]
PATIENCE = 900
"""Seconds: the machine may be busy with other tests"""


@dataclass(frozen=True)
class Done:
    """A finished tour in a directory of its own."""

    folder: Path
    code: int
    first: dict[str, Any]
    seconds: float

    @property
    def page(self) -> Path:
        return self.folder / self.first["page"]

    def runs(self) -> dict[str, float]:
        store = Store(self.folder / "whence-demo" / "store")
        return {run.id: run.updated for run in store.summaries()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("tour")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("WHENCE_STORE", raising=False)
        train_in_process(patch)
        shrink(patch.setitem)
        texts: list[str] = []
        started = time.monotonic()
        with pytest.MonkeyPatch.context() as printing:  # capsys is not there yet
            printing.setattr("whence.cli.demo.print_json", lambda content: texts.append(json.dumps(content)))
            code = run([*QUICK, "--json"])
        yield Done(folder, code, json.loads(texts[0]), time.monotonic() - started)


def test_every_section_is_on_the_page(done: Done) -> None:
    states = {section["name"]: (section["state"], section.get("problem")) for section in done.first["sections"]}
    assert states == dict.fromkeys(NAMES, ("finished", None))
    assert done.code == 0
    page = done.page.read_text()
    for section in done.first["sections"]:
        assert f'<section id="{section["name"]}">' in page
        assert section["further"]
    assert "exploratory" in page, "one seed"
    assert "10 paired seeds" in page, "the published table"
    assert "×4" in page
    assert page.count("dB") > 10
    assert str(done.folder) not in page, "paths are relative to where the command was given"


def test_the_store_of_the_tour_is_whole(done: Done) -> None:
    checks = dict(verify_store(Store(done.folder / "whence-demo" / "store")))
    assert len(checks) > 10
    assert not {what: problems for what, problems in checks.items() if problems}


def test_again_nothing_is_run(done: Done, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(done.folder)
    before, started = done.runs(), time.monotonic()
    again = document(QUICK, capsys)
    assert time.monotonic() - started < max(10.0, done.seconds)
    assert done.runs() == before
    assert [section["numbers"] for section in again["sections"]] == [s["numbers"] for s in done.first["sections"]]


def test_commands_of_the_page_are_accepted(
    done: Done, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(done.folder)
    commands = [line for section in done.first["sections"] for line in [section["command"], *section["further"]]]
    checked = 0
    for line in [part for command in commands for part in command.split(" && ")]:
        words = shlex.split(line)
        assert words[0] == "whence"
        if words[2] in ("compare", "train"):
            output([*words[1:], "--print-config"], capsys)
            checked += 1
        elif "FILE.py:FUNCTION" not in words and "YOUR.jpg" not in words:
            output(words[1:], capsys)
            checked += 1
    assert checked >= 8


def test_a_browser_draws_the_page(done: Done, browse: Callable[[bytes], str]) -> None:
    shown = browse(done.page.read_bytes())
    assert shown.count('class="main-svg"') >= 10
    assert "data-drawn" in shown, "attention maps"


@pytest.mark.skipif(browser() is None, reason="no Chromium was found")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits(done: Done, width: int) -> None:
    from playwright.sync_api import sync_playwright

    def measured() -> int:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": width, "height": 900})
            page.set_default_timeout(120_000)  # the machine may be busy with other tests
            page.goto(done.page.as_uri())
            pixels = page.evaluate("document.documentElement.scrollWidth")
            chromium.close()
            return pixels

    # in a thread of its own: the tests of the app may run playwright in this one
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(measured).result() <= width


def test_a_section_that_fails_is_a_message_in_its_place(
    done: Done, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(context: Any) -> Any:
        raise SectionError("the <reason> of it")

    def bug(context: Any) -> Any:
        return {}["missing"]

    monkeypatch.chdir(done.folder)
    arena, leak, *_ = tours.SECTIONS
    monkeypatch.setattr(tours, "SECTIONS", (arena, replace(leak, build=broken), replace(leak, name="x", build=bug)))
    sections = document(QUICK, capsys, code=1)["sections"]
    assert [section["state"] for section in sections] == ["finished", "failed", "failed"]
    page = done.page.read_text()
    assert "the &lt;reason&gt; of it" in page
    assert "KeyError" in page
    assert "accuracy" in page


def test_commands_that_install_what_is_missing() -> None:
    here, imported, read = Requirement("pip", "pip"), Requirement("one", "no_such_module"), Requirement("no-such-files")
    assert install_command([here]) == ""
    assert install_command([here, imported]) == "pip install one"
    assert install_command([imported, read]) == "pip install one && pip install --no-deps no-such-files"


def test_an_output_that_is_no_directory_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "taken").write_text("mine")
    assert run(["demo", "--out", "taken"]) == 2
    assert "expected a directory, got 'taken'" in capsys.readouterr().err


# --- processes


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`whence demo --quick --json` in a process of its own, without the packages of two sections."""
    processes: list[subprocess.Popen[str]] = []

    def started(*, steps: int = 4) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "src")])}
        environment.pop("WHENCE_STORE", None)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.demo.tiny", str(steps), "transformers,PIL", *QUICK, "--json"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def test_what_is_missing_is_named_with_the_command_that_installs_it(tmp_path: Path, start: Start) -> None:
    process = start()
    text, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    sections = {section["name"]: section for section in json.loads(text)["sections"]}
    assert {name: section["state"] for name, section in sections.items()} == {
        "arena": "finished",
        "leak": "finished",
        "features": "missing packages",
        "fields": "missing packages",
    }
    page = (tmp_path / "whence-demo" / "index.html").read_text()
    for name, command in (("features", "pip install transformers"), ("fields", "pip install pillow")):
        assert sections[name]["install"] == command
        assert command in page


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill"])
def test_what_was_interrupted_is_resumed(tmp_path: Path, start: Start, how: signal.Signals) -> None:
    store = Store(tmp_path / "whence-demo" / "store")
    process = start(steps=600)
    deadline = time.monotonic() + PATIENCE
    while not any(run.state == "finished" for run in store.summaries()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(how)
    _, errors = process.communicate(timeout=PATIENCE)
    before = {run.id: run.updated for run in store.summaries() if run.state == "finished"}
    assert not (tmp_path / "whence-demo" / "index.html").exists()
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "To resume:  whence demo --quick" in errors
    again = start(steps=600)
    text, errors = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, errors
    assert (tmp_path / json.loads(text)["page"]).is_file()
    after = {run.id: run.updated for run in store.summaries()}
    assert before.items() <= after.items(), "what had finished is not run again"
