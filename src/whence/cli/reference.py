"""docs/cli.md, from the help of every verb: `python -m whence.cli.reference > docs/cli.md` (`make docs`)."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator

from whence.cli.main import COMMANDS, INSTRUMENTS, run, verbs_of

WIDTH = "100"


def reference() -> str:
    """The page, at a width that does not depend on the terminal."""
    parts = ["# Command line", "", "Generated from `--help` by `make docs`.", ""]
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        for words, text in help_texts():
            if words:
                parts += ["", f"{'#' * (len(words) + 1)} whence {' '.join(words)}", ""]
            parts.append(f"```text\n{text.rstrip()}\n```")
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return "\n".join(parts) + "\n"


def help_texts() -> Iterator[tuple[tuple[str, ...], str]]:
    """The words of every command, and what `--help` prints for it."""
    yield (), _help([])
    for name in INSTRUMENTS | COMMANDS:
        yield (name,), _help([name])
        yield from (((name, verb), _help([name, verb])) for verb in verbs_of(name) if verb != name)


def _help(words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run([*words, "--help"])
    return printed.getvalue()


if __name__ == "__main__":
    print(reference(), end="")
