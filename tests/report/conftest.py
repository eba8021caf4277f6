"""A comparison with all that a page can show, and a browser to show it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.arena.made import TASK, fail, finish, spec
from whence.arena.attention import Maps
from whence.arena.export import BROWSERS
from whence.arena.page import Page
from whence.arena.table import tabulate
from whence.experiments.saved import save_config
from whence.runs.store import Store


def some_maps(layers: int = 2, heads: int = 2, tokens: int = 8) -> Maps:
    generator = torch.Generator().manual_seed(layers + heads)
    weights = torch.rand(layers, 3, heads, tokens, tokens, generator=generator).tril()
    weights = weights / weights.sum(-1, keepdim=True)
    distance = torch.arange(layers * heads).reshape(layers, heads) + 0.5
    return Maps(weights, distance.float(), torch.randint(4, (3, tokens), generator=generator))


@pytest.fixture
def page(store: Store) -> Page:
    """Two tasks; one encoding masters, one learns, one has a failed run."""
    comparison = spec("rope", "alibi", "t5", tasks=[TASK, "long_range_match"], seeds=9)
    plan = comparison.plan()
    for run in plan:
        name, wiggle = run.model.contender, run.seed / 1000
        if name == "t5" and run.seed == 8:
            fail(store, run, "loss is <i>NaN</i> & gone")
        elif name == "rope":
            finish(store, run, 1.0 - wiggle, 0.9 - wiggle)
        else:
            finish(store, run, 0.8 + wiggle if name == "alibi" else 0.7)
    tables = tabulate(plan, store)
    maps = {(table.title, name): some_maps() for table in tables for name in ("rope", "alibi")}
    path = save_config("arena", comparison, store)
    return Page(tables, comparison.model_dump(mode="json"), f"whence arena --config {path}", maps)


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[bytes], str]:
    """The document as Chromium sees it after its scripts have run."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium was found: install one, pages must be seen in a browser before they are shipped")
        pytest.skip("no Chromium was found; pages are not looked at in a browser")

    def shown(page: bytes) -> str:
        file = tmp_path / "page.html"
        file.write_bytes(page)
        done = subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                f"--user-data-dir={tmp_path}/profile",
                "--virtual-time-budget=4000",
                "--dump-dom",
                file.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout

    return shown
