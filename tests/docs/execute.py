"""Executing the blocks of a page in an empty folder: cheaply for `make test`, as written for `make docs-test`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import Block, commands_in
from whence.cli import options
from whence.cli.main import run, run_command

RUN = re.compile(r"(?<![\w./-])(?=\w*\d)(?=\w*[a-f])[0-9a-f]{4,12}(?![\w./-])|\bRUN\b")
COMPARISON = re.compile(r"(?<![\w./-])(arena|leak|features|fields)-(?=\w*\d)[0-9a-f]{4,}(?![\w./-])")


class ParsedError(Exception):
    """In place of the execution of a command that has been parsed."""


@contextmanager
def only_parsing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands end when their flags are known: values and files are not looked at."""
    parse = options._Parser.parse

    def parse_only(self: Any, arguments: list[str]) -> dict[str, Any]:
        parse(self, arguments)
        raise ParsedError

    with monkeypatch.context() as patch:
        patch.setattr(options._Parser, "parse", parse_only)
        yield


def check_command(line: str, makefile: str) -> None:
    """A command that a reader could type: its verb, flags, target or module exist. Call inside `only_parsing`."""
    program, *arguments = shlex.split(line, comments=True)
    if program == "whence" and arguments not in ([], ["--help"], ["--version"]):
        words = [word for word in arguments if word != "--help"]
        if len(words) == 1 and words != arguments:
            words = []  # `whence arena --help`: the list of verbs
        if words:
            with pytest.raises(ParsedError):
                run_command(*words)
    elif program == "make":
        for target in arguments:
            assert f"\n{target}:" in makefile or "=" in target, f"make {target}: no such target"
    elif program.endswith("python") and arguments[0] == "-m" and arguments[1].startswith("tests"):
        module = Path(*arguments[1].split("."))
        assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), line
    else:
        assert program.endswith(("whence", "python", "pip", "git", "source", "cd", "ssh", "rsync")), line


def execute_python(block: Block, code: str, namespace: dict[str, Any]) -> str:
    """Returns what the block prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("\n" * block.line + code, str(block.page), "exec", dont_inherit=True), namespace)
    return printed.getvalue()


def execute_here(block: Block, folder: Path) -> None:
    """The commands of a quick block, in this process."""
    for line in commands_in(block.quick_code):
        program, *arguments = shlex.split(with_ids(line, folder), comments=True)
        assert program == "whence", f"{block.name}: {line!r} cannot be executed by a test"
        assert run(arguments) == 0, f"{block.name}: {line}"


def with_ids(code: str, folder: Path) -> str:
    """An id stands for the latest run or comparison of the page, unless there is one of that name.

    Ids of readers differ where a command measures the machine, and those of `make test` where it replaces options.
    """
    store = folder / "whence-runs"
    code = COMPARISON.sub(lambda match: _named(store / "reports", match[0], f"{match[1]}-*.json"), code)
    return RUN.sub(lambda match: _named(store / "runs", match[0], "*"), code)


def _named(folder: Path, name: str, pattern: str) -> str:
    if any(folder.glob(f"{name}*")):
        return name
    newest = max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns, default=None)
    return newest.stem if newest else name


def execute_as_written(block: Block, folder: Path) -> None:
    """A bash block, in a shell in which `whence` is this tree's."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in commands_in(block.code):
        command = ["bash", "-euc", with_ids(line, folder)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block.name}: {line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def write_file(block: Block, folder: Path) -> None:
    path = folder / block.argument
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code)
    if path.suffix == ".py":
        compile(block.code, block.argument, "exec")
