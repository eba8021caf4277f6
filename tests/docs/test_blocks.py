"""Every code block of README and docs runs: the cheap ones in `make test`, all of them in `make docs-test`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import train_in_process
from tests.docs.execute import (
    check_command,
    execute_as_written,
    execute_here,
    execute_python,
    only_parsing,
    write_file,
)
from tests.docs.pages import LANGUAGES, PROJECT, Block, blocks, pages

PAGES = pages()
INLINE = re.compile(r"`((?:whence|make) [^`\n]+)`")
PLACEHOLDERS = re.compile(r"…|\.\.\.")


def name_of(page: Path) -> str:
    return str(page.relative_to(PROJECT))


def with_blocks(*, long: bool) -> list[Path]:
    def executed(block: Block) -> bool:
        return block.language in ("python", "bash") and block.how not in ("parse", "file") and (long or block.quick)

    return [page for page in PAGES if any(map(executed, blocks(page)))]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_known_kind(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.name}: ```{block.language}"
        assert block.language != "yaml" or block.how == "file", f"{block.name}: a configuration needs <!-- file: … -->"
        assert block.how != "parse" or block.argument, f"{block.name}: a reason is missing"
    assert page.read_text().count("\n```") == 2 * len(blocks(page)), f"{name_of(page)}: a fence that is not read"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_known(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks and in running text. Flags are checked by the parser that reads them from a user."""
    makefile = "\n" + (PROJECT / "Makefile").read_text()
    monkeypatch.chdir(PROJECT)
    commands = [line for block in blocks(page) if block.language == "bash" for line in block.commands]
    commands += [line for line in INLINE.findall(page.read_text()) if not PLACEHOLDERS.search(line)]
    with only_parsing(monkeypatch):
        for line in commands:
            if "INSTRUMENT" in shlex.split(line, comments=True) or " VERB" in line:
                continue
            check_command(line, makefile)


@pytest.mark.parametrize("page", with_blocks(long=False), ids=name_of)
def test_blocks_that_are_cheap(page: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_in_process(monkeypatch)
    printed, namespace = "", new_namespace()
    for block in blocks(page):
        if block.how == "file":
            write_file(block, here)
        elif block.how == "output":
            assert block.code == printed, block.name
        elif block.quick and block.language == "python":
            printed = execute_python(block, block.quick_code, namespace)
        elif block.quick:
            execute_here(block, here)


@pytest.mark.slow
@pytest.mark.parametrize("page", with_blocks(long=True), ids=name_of)
def test_blocks_as_written(page: Path, here: Path) -> None:
    printed, namespace = "", new_namespace()
    for block in blocks(page):
        if block.how == "file":
            write_file(block, here)
        elif block.how == "output":
            assert block.code == printed, block.name
        elif block.how != "parse" and block.language == "python":
            printed = execute_python(block, block.code, namespace)
        elif block.how != "parse" and block.language == "bash":
            execute_as_written(block, here)


def new_namespace() -> dict[str, Any]:
    return {"__name__": "__main__"}
