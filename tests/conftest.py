"""Shared by all tests: a run small enough to train in a blink, and the option for the slow suites."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Some oracles come from libraries that can download models. The tests must run, and mean the same, without a network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

TINY: dict[str, Any] = {
    "task": "k_back_recall:k=1,symbols=4",
    "model": {"d_model": 16, "heads": 2, "layers": 1, "encoding": "rope"},
    "lengths": {"train_length": 8, "test_lengths": [16], "test_sequences": 16},
    "training": {"steps": 60, "batch_size": 8, "evaluations": 6, "warmup": 5},
}
TINY_FLAGS = [
    "--d-model",
    "16",
    "--heads",
    "2",
    "--layers",
    "1",
    "--train-length",
    "8",
    "--test-lengths",
    "16",
    "--test-sequences",
    "16",
    "--batch-size",
    "8",
    "--evaluations",
    "6",
    "--warmup",
    "5",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="long forms of the suites that have one")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that are marked as slow are not even skipped, unless they are asked for."""
    if not config.getoption("--slow"):
        left = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)


@pytest.fixture(scope="session")
def slow(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--slow"))


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        result[key] = merged(result[key], value) if isinstance(value, dict) else value
    return result


@pytest.fixture
def tiny() -> Callable[..., Any]:
    """`tiny(seed=3, training={"steps": 5})`: a run spec, small unless told otherwise."""
    from whence.arena.run import ArenaRun

    return lambda **changes: ArenaRun.read(merged(TINY, changes))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    train_in_process(monkeypatch)


def train_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs train in this process: for tests that are not about workers, which take seconds to start."""
    from tests.calls import run_here
    from whence.experiments import comparison

    monkeypatch.setattr(comparison, "run_all", run_here)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no store named elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WHENCE_STORE", raising=False)
    return tmp_path


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """An empty one, ready to be written."""
    from whence.store.runs import Store

    store = Store(tmp_path / "store")
    store.prepare()
    return store


@pytest.fixture
def project_copy(tmp_path: Path) -> Path:
    """The whole project, to be changed at will."""
    project = Path(__file__).parents[1]
    for part in ("src", "tests"):
        shutil.copytree(project / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(project / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture
def source() -> Path:
    return Path(__file__).parents[1] / "src"


WATCH = """
const root = document.documentElement, note = text => { root.dataset.wrong = (root.dataset.wrong ?? '') + text; };
root.dataset.watched = '';
addEventListener('error', e => note(e.message), true);
addEventListener('unhandledrejection', e => note(String(e.reason)));
document.addEventListener('securitypolicyviolation', e => note(`${e.violatedDirective}: ${e.blockedURI}`));
const outside = list => list.getEntries().filter(entry => !/^(data|blob):/.test(entry.name));
new PerformanceObserver(list => outside(list).forEach(entry => note(entry.name)))
  .observe({ type: 'resource', buffered: true });
"""


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[bytes], str]:
    """The document of a page as Chromium sees it after its scripts have run.

    Fails if a script of the page fails, if its content-security policy refuses anything, or if it fetches anything.
    """
    from whence.report.export import browser
    from whence.report.shell import with_script

    program = browser()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium was found: install one, pages must be seen in a browser before they are shipped")
        pytest.skip("no Chromium was found; pages are not looked at in a browser")

    def shown(page: bytes) -> str:
        file = tmp_path / "page.html"
        file.write_bytes(with_script(page, WATCH))
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=4000"]
        command = [program, *options, f"--user-data-dir={tmp_path}/profile", "--dump-dom", file.as_uri()]
        document = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        root = document[: document.index("<head>")]
        assert "data-watched" in root
        assert "data-wrong" not in root, root
        return document

    return shown


_BASELINES: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def declared_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Baselines that are not packaged come from the shortcuts that a task declares, without the whole search.

    The runs of these tests are tiny. The search would take longer than they do, and short sequences leave little room
    above its baselines. The tests of the search itself replace this fixture.
    """
    from whence.shortcuts import baselines
    from whence.shortcuts.search import search

    monkeypatch.setattr(baselines, "_in_memory", _BASELINES)
    monkeypatch.setattr(baselines, "_read", lambda name: None)
    monkeypatch.setattr(baselines, "_save", lambda name, scores: None)
    monkeypatch.setattr(
        baselines, "search", lambda *arguments: search(*arguments, samples=4000, classes=("majority", "declared"))
    )
