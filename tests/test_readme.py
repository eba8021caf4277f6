"""What README and the published tables state is what the code and the results files hold. Code blocks: tests/docs."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from whence.cli.main import COMMANDS, INSTRUMENTS
from whence.encodings import ENCODINGS

PROJECT = Path(__file__).parents[1]
README = (PROJECT / "README.md").read_text()


def test_its_tables_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make publish` would change nothing, and the results hold what is needed to check them."""
    monkeypatch.syspath_prepend(str(PROJECT / "bench"))
    publish = importlib.import_module("publish")
    for page in publish.PAGES:
        assert publish.written(page.read_text()) == page.read_text(), f"make publish: {page.name}"
    blocks = {name for page in publish.PAGES for _, name, _ in publish.BLOCK.findall(page.read_text())}
    assert blocks == set(publish.BLOCKS)
    for path in (publish.FIXED, publish.TUNED):
        results = json.loads(path.read_text())
        assert {"torch", "whence", "python", "format"} <= set(results["versions"])
        assert results["config"]["seeds"] >= 10
        for table in results["tables"]:
            assert all(len(row["cells"]["id"]["per_seed"]) == len(row["runs"]) >= 10 for row in table["rows"])
            assert table["heading"]
            assert table["design"] == "fixed"


def test_its_summary_is_short() -> None:
    summary = README.split("<!-- results: summary -->\n")[1].split("<!-- end of results -->")[0]
    assert 0 < summary.count("\n") <= 5


def test_it_names_what_is_there() -> None:
    assert f"{len(ENCODINGS)} positional encodings" in README
    pages = "\n".join(page.read_text() for page in [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")])
    for verb in INSTRUMENTS | COMMANDS:
        assert f"whence {verb}" in pages


def test_every_folder_of_its_tree_exists() -> None:
    tree = README.split("```text\n")[1].split("```")[0]
    for line in tree.splitlines():
        place = PROJECT / "src" / "whence" if line.startswith("  ") else PROJECT
        for name in re.findall(r"(\S+)(?= )", re.split(r"(?<=\S)   ", line)[0] + " "):
            assert (place / name).exists(), name
